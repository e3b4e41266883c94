"""What runs a Tidemill program without the chip."""
