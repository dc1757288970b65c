"""The rows of affected keys are computed again."""
