# Pins and clock of tidemill_top on the ULX3S with LFE5U-12F. Written by `tidemill constraints`.
create_clock -name clk -period 40.000 [get_ports {clk}]
