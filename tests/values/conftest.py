"""A project on disk that a test fills with declarations."""

from tests.declared_project import project as project
from tests.declared_project import shop as shop
