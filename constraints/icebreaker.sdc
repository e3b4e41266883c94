# Pins and clock of tidemill_top on the iCEBreaker. Written by `tidemill constraints`.
create_clock -name clk -period 83.333 [get_ports {clk}]
