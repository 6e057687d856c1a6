"""Values as bytes and back: the codec, and rows with their check values."""
