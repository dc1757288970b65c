"""Catalogs in which others find the tables by name: the entries that are wanted, one sync, and the shipped registrars.

A registrar has a light half, which settings need (`registrar.py`), and a catalog, which talks to the system. The rest
of freshline knows neither by name: it finds them through `freshline.values.registry`.
"""
