"""The language of declarations: the dialect, the forms that freshline writes out, the managing statements."""
