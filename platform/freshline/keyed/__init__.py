"""Rows of one key after the other, given to a class of the user: the replay behind `freshline.process`.

It runs in the Python processes of Spark, and knows nothing of tables, declarations or Spark itself.
"""
