"""The token of the UI, and the cookie that stands for it in a browser.

Cookies of one name of this machine are sent to every port of it, so the cookie is not the token: it is signed with it,
ends by itself, and opens this UI only. Whoever changes the token ends all cookies.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime, timedelta

LASTS = timedelta(days=30)


@dataclass(frozen=True)
class Login:
    """The token that is compared with the presented one, in constant time."""

    token: str = field(repr=False)
    port: int

    @property
    def cookie_name(self) -> str:
        return f"freshline_{self.port}"

    def is_token(self, presented: str) -> bool:
        return hmac.compare_digest(presented.encode(), self.token.encode())

    def cookie(self, now: datetime) -> str:
        """The value of a cookie that is made now.

        >>> from datetime import UTC
        >>> login, now = Login("0123456789abcdef", 3000), datetime(2026, 11, 1, tzinfo=UTC)
        >>> login.is_cookie(login.cookie(now), now + LASTS / 2), login.is_cookie(login.cookie(now), now + LASTS)
        (True, False)
        """
        ends = str(int((now + LASTS).timestamp()))
        return f"{ends}.{self._signature(ends)}"

    def is_cookie(self, presented: str, now: datetime) -> bool:
        ends, _, signature = presented.partition(".")
        if not (ends.isascii() and ends.isdigit() and len(ends) <= 12):
            return False
        return hmac.compare_digest(signature.encode(), self._signature(ends).encode()) and now.timestamp() < int(ends)

    def _signature(self, ends: str) -> str:
        said = f"freshline UI at port {self.port} until {ends}"
        return hmac.new(self.token.encode(), said.encode(), hashlib.sha256).hexdigest()
