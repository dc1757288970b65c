"""Reading `[tool.freshline.catalogs.NAME]`: the catalogs in which the tables of a project are entered.

Options of a shipped registrar are checked when the settings are read. The class of another package is loaded when its
catalog is opened, so that a package that does not load costs its catalog and nothing else.
"""

from __future__ import annotations

import re

from freshline.errors import CatalogError, SettingsError
from freshline.values.location import Location, Written
from freshline.values.options import Options, join_words
from freshline.values.registrar import Registrar
from freshline.values.registry import REGISTRAR_GROUP, REGISTRARS, ExtensionError, find_registrar, names_outside
from freshline.values.rules import Problems, nearest
from freshline.values.settings import CatalogSettings, check_keys

CATALOG_KEYS = ("type",)
CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
# As registrars of other packages are named.
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")


def merged_catalogs(section: object, own: object) -> object:
    """The catalogs of the project with those of one environment on top, one by one."""
    return {**section, **own} if isinstance(section, dict) and isinstance(own, dict) else own


def read_catalogs(value: object, where: str) -> tuple[CatalogSettings, ...]:
    """The settings of catalogs; raises SettingsError."""
    if not isinstance(value, dict):
        raise SettingsError("catalogs are tables: [tool.freshline.catalogs.<name>].", where=where)
    return tuple(_read(name, own, where) for name, own in value.items())


def _read(name: str, value: object, where: str) -> CatalogSettings:
    shown = shown_table(name)
    if not CATALOG_NAME.match(name):
        raise SettingsError(f"catalog {name!r}: a name has letters, digits, _ and - only, up to 100.", where=where)
    if not isinstance(value, dict):
        raise SettingsError(f"catalogs are tables: {shown}.", where=where)
    kind = value.get("type")
    if not isinstance(kind, str) or not _TYPE.match(kind):
        known = join_words(tuple(REGISTRARS))
        raise SettingsError(
            f"{shown}: type is {kind!r}. Accepted is {known}, or the registrar of another package.", where=where
        )
    options = {key: _text(key, each, shown, where) for key, each in value.items() if key != "type"}
    chosen = CatalogSettings(name, kind, options)
    if kind in REGISTRARS:
        declared_registrar(chosen, where)
    return chosen


def _text(key: str, value: object, shown: str, where: str) -> str:
    """A value of TOML as declarations write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    # It may be a secret, so it is not shown.
    raise SettingsError(f"{shown}: {key} is a text, a whole number, true or false.", where=where)


def shown_table(name: str) -> str:
    """The table of settings of a catalog, as errors name it."""
    return f"[tool.freshline.catalogs.{name}]"


def declared_registrar(catalog: CatalogSettings, where: str) -> Registrar:
    """The registrar that a catalog's settings declare. Raises SettingsError, and CatalogError for an unusable type."""
    shown = shown_table(catalog.name)
    if catalog.type not in REGISTRARS and catalog.type not in (others := names_outside(REGISTRAR_GROUP)):
        known = (*REGISTRARS, *others)
        raise CatalogError(
            f"no installed package has the registrar '{catalog.type}'.{nearest(catalog.type, known)} Install the "
            f"package that it is of, or correct `type`. There are {join_words(known)}.",
            where=shown,
            refused=True,
        )
    try:
        kind = find_registrar(catalog.type)
    except ExtensionError as error:
        raise CatalogError(f"registrar {error}", where=shown, refused=True) from error
    known = tuple(option.name for option in kind.options)
    check_keys(catalog.options, ("type", *known), shown, where)
    at, problems = Location(where, 0), Problems()
    written = {key: Written(text, 0) for key, text in catalog.options.items()}
    options = Options(written, at, problems, known)
    options.require_all(kind.options, shown, at)
    options.require_references(kind.options)
    options.refuse_references(but=tuple(option.name for option in kind.options if option.may_refer))
    registrar = None if problems else kind.declare(options)
    if problems or registrar is None:
        sentences = dict.fromkeys(error.message for error in problems.errors)
        raise SettingsError(f"{shown}: {' '.join(sentences)}", where=where)
    return registrar
