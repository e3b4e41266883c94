# Pins and clock of tidemill_top on the Icepi Zero 1.3. Written by `tidemill constraints`.
create_clock -name clk -period 20.000 [get_ports {clk}]
