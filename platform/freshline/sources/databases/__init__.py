"""The code that connectors of databases share: connections, values, rows in bounded memory, and net changes."""
