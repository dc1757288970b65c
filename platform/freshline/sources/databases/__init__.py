"""What connectors of databases share: connections, values, rows in bounded memory, and net changes."""
