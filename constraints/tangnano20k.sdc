# Pins and clock of tidemill_top on the Tang Nano 20K. Written by `tidemill constraints`.
create_clock -name clk -period 37.037 [get_ports {clk}]
