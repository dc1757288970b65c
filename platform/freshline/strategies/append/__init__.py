"""Rows are added: the query over what its inputs gained."""
