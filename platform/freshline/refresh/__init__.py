"""The basis of one attempt at a refresh: sessions, pinned inputs, computed and judged rows."""
