"""The admin port: what operators and Prometheus read, apart from the data port in every way."""
