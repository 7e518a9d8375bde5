"""What differs from engine to engine: how each tells its models, and how the embedded one is started."""
