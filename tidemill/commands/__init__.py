"""The subcommands of `tidemill`, one module for each; `tidemill.cli` puts them together."""
