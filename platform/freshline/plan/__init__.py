"""From values to a plan: what a refresh will do, decided without Spark, storage or clock."""
