// Bench around the chip. It plays a script at native speed; cocotb (run.py) only wakes for token events.
//
// Script: records of 16 bytes {op 8, space 8, addr 32, spare 16, data 64}, most significant byte first.
//   0 WRITE  one host write                               one per cycle
//   1 RUN    start, wait until the chip is idle again;    data: abort in that cycle of the run, 0: never
//   2 DUMP   `data` host reads from `addr` on             one per cycle, 8 bytes each to the dump file
//   3 END
//
// Log: one line per event. Cycle 0 of a run is the first dispatch cycle of EMBED, seen inside the chip;
// `now` is the bench's own count of clock edges and knows nothing of the chip's counters.
//   S now                                    start
//   T token generated token_cycles measured  token event; measured: cycles since cycle 0 of the run
//   P now value                              a port value right after the run: fifo word
//   E fault kind queue cycle now             the chip is idle
//   X now                                    no event for `+limit` cycles: given up

`timescale 1ns / 1ps

module bench (
    output reg [31:0] events,  // counts token events
    output reg [15:0] token,
    output reg generated,
    output reg [23:0] token_cycles,
    output reg [63:0] measured,
    output reg [31:0] run,  // counts runs
    output reg [63:0] now,
    output reg finished,
    output wire [63:0] chip_id
);
    localparam FETCH = 0, RUN = 1, DRAIN = 2, DUMP = 3, END = 4, RESET = 5;

    reg clk = 0;
    always #5 clk = ~clk;

    reg rst = 1;
    reg host_en = 0, host_we = 0, start = 0, abort = 0;
    reg [3:0] host_space;
    reg [23:0] host_addr;
    reg [63:0] host_wdata;
    wire [63:0] host_rdata;
    wire busy, done, token_valid, token_generated, fifo_valid, fault;
    wire [15:0] chip_token;
    wire [23:0] chip_cycles;
    wire [35:0] fifo_data;
    wire [2:0] fault_kind;
    wire [3:0] fault_queue;
    wire [31:0] fault_cycle;
    reg [2:0] state = RESET;
    wire fifo_pop = state == DRAIN && fifo_valid;

    tidemill dut (
        .clk(clk), .rst(rst),
        .host_en(host_en), .host_we(host_we), .host_space(host_space), .host_addr(host_addr),
        .host_wdata(host_wdata), .host_rdata(host_rdata),
        .start(start), .abort(abort), .busy(busy), .done(done),
        .token_valid(token_valid), .token(chip_token), .token_generated(token_generated),
        .token_cycles(chip_cycles),
        .fifo_seek(1'b0), .fifo_at(16'd0), .fifo_index(), .fifo_count(),
        .fifo_pop(fifo_pop), .fifo_valid(fifo_valid), .fifo_data(fifo_data),
        .fault(fault), .fault_kind(fault_kind), .fault_queue(fault_queue),
        .fault_cycle(fault_cycle), .chip_id(chip_id)
    );

    string path;
    integer script, log_file, dump_file, got;
    reg [127:0] record;
    reg [63:0] limit, silent, zero, abort_at, count;
    reg anchored;
    reg [3:0] pause;
    reg [`HOST_READ_LATENCY:0] reading;  // of the ISA, by -D

    initial begin
        events = 0;
        run = 0;
        now = 0;
        finished = 0;
        pause = 0;
        reading = 0;
        anchored = 0;
        abort_at = 0;
        if (!$value$plusargs("script=%s", path)) $fatal(1, "no +script");
        script = $fopen(path, "rb");
        if (script == 0) $fatal(1, "cannot open the script");
        if (!$value$plusargs("log=%s", path)) $fatal(1, "no +log");
        log_file = $fopen(path, "w");
        dump_file = 0;
        if ($value$plusargs("dump=%s", path)) dump_file = $fopen(path, "wb");
        if (!$value$plusargs("limit=%d", limit)) limit = 2000000;
    end

    always @(posedge clk) begin
        now <= now + 1;
        host_en <= 0;
        host_we <= 0;
        start <= 0;
        abort <= 0;
        reading <= reading << 1;
        if (reading[`HOST_READ_LATENCY]) $fwrite(dump_file, "%u", host_rdata);

        case (state)
            RESET: begin
                if (now == 3) rst <= 0;
                if (now == 4) state <= FETCH;
            end

            FETCH: begin
                got = $fread(record, script);
                case (got == 16 ? record[127:120] : 8'd3)
                    0: begin
                        host_en <= 1;
                        host_we <= 1;
                        host_space <= record[115:112];
                        host_addr <= record[103:80];
                        host_wdata <= record[63:0];
                    end
                    1: begin
                        start <= 1;
                        run <= run + 1;
                        abort_at <= record[63:0];
                        anchored <= 0;
                        silent <= 0;
                        pause <= 0;
                        state <= RUN;
                        $fwrite(log_file, "S %0d\n", now + 1);
                    end
                    2: begin
                        host_space <= record[115:112];
                        host_addr <= record[103:80] - 1;
                        count <= record[63:0];
                        pause <= 0;
                        state <= DUMP;
                    end
                    default: state <= END;
                endcase
            end

            RUN: begin
                silent <= silent + 1;
                pause <= busy ? 0 : pause + 1;  // a fault may be reported after the last cycle
                if (!anchored && dut.sequencer.tide_load) begin
                    anchored <= 1;
                    zero <= now;
                end
                if (anchored && abort_at != 0 && now - zero + 1 == abort_at) abort <= 1;
                if (token_valid) begin
                    silent <= 0;
                    events <= events + 1;
                    token <= chip_token;
                    generated <= token_generated;
                    token_cycles <= chip_cycles;
                    measured <= now - zero;
                    $fwrite(log_file, "T %0d %0d %0d %0d\n", chip_token, token_generated,
                            chip_cycles, now - zero);
                    $fflush(log_file);
                end
                if (pause == 7 && !busy) begin
                    pause <= 0;
                    $fwrite(log_file, "E %0d %0d %0d %0d %0d\n", fault, fault_kind, fault_queue,
                            fault_cycle, now);
                    state <= abort_at != 0 ? FETCH : DRAIN;
                end else if (silent == limit) begin
                    $fwrite(log_file, "X %0d\n", now);
                    state <= END;
                end
            end

            DRAIN: begin
                if (pause != 3) pause <= pause + 1;
                if (fifo_valid) $fwrite(log_file, "P %0d %0d\n", now, fifo_data);
                else if (pause == 3) state <= FETCH;
            end

            DUMP: begin
                if (count != 0) begin
                    host_en <= 1;
                    host_addr <= host_addr + 1;
                    count <= count - 1;
                    reading[0] <= 1;
                end else begin
                    pause <= pause + 1;
                    if (pause == 7) state <= FETCH;
                end
            end

            default: begin
                if (!finished) begin
                    if (dump_file != 0) $fclose(dump_file);
                    $fclose(log_file);
                end
                finished <= 1;
            end
        endcase
    end

`ifdef TIDEMILL_WAVES
    // Waves of cycles +wave_from to +wave_to of the first run, for Verilator. All signals change at
    // clock edges, where cycles begin: the dump begins and ends in the middle of its cycles.
    string wave;
    reg [63:0] cycle = 0, wave_from, wave_to;
    reg counting = 0;

    initial begin
        if (!$value$plusargs("wave=%s", wave)) $fatal(1, "no +wave");
        if (!$value$plusargs("wave_from=%d", wave_from)) $fatal(1, "no +wave_from");
        if (!$value$plusargs("wave_to=%d", wave_to)) $fatal(1, "no +wave_to");
        $dumpfile(wave);
    end

    always @(negedge clk) begin
        if (counting || (run == 1 && dut.sequencer.tide_load)) begin
            counting = 1;
            if (cycle == wave_from) $dumpvars(0, dut);
            if (cycle == wave_to) $c("vlSymsp->_traceDumpClose();");  // its $dumpoff does nothing
            cycle = cycle + 1;
        end
    end
`endif
endmodule
