"""What one attempt at a refresh stands on: sessions, pinned inputs, computed and judged rows."""
