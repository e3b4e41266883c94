"""The host's side of the link: frames, serial port, requests, driver, self-test."""
