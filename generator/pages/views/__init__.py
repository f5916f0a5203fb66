"""What pages of several kinds share: claims, the frame, and pages written by hand."""
