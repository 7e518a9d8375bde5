"""What the operator chose: file, environment and flags become one frozen tree; errors name the path."""
