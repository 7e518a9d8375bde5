"""Loops beside the journey: they find out how the world is and tell the core, or act on what it plans."""
