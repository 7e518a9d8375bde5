"""The built-in gateway: HTTP in front, engines behind. Read `journey.py` first."""
