"""What is done with graphs: shapes noted, patterns matched, graphs split."""
