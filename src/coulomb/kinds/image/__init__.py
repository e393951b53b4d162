"""Images: decoding, canvases and views."""
