"""The formats of records that come with freshline."""
