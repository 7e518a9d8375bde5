"""Where everything is put together; nothing below imports upward, because this passes things down."""
