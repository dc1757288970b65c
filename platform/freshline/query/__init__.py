"""One query, parsed once: its tree, columns and lineage, and rules over it that say how its result is kept up."""
