"""What the house lets people see: metrics, the access log, the application's log. It decides nothing."""
