// A board in Verilator whose UART is a pseudo-terminal.
//
//   board DIVISOR [+plusargs]     prints the terminal's name; ends when standard input does
//
// Bytes from the terminal are shifted into uart_rx, DIVISOR clock cycles a bit, those from uart_tx go to the
// terminal. Only the pins are looked at.
//
// The clock runs for QUIET cycles after the last byte in either direction, which is longer than every timer of the
// board, and then stands until a byte comes. A run whose positions take longer goes on with every question of the
// host, which asks twice a second.

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>

#include "Vtidemill_top.h"
#include "verilated.h"

static const uint64_t QUIET = (1u << 20) + (1u << 14);
// Cycles between looks at the terminal, and at standard input.
static const uint64_t LOOK = 64, LOOK_ALIVE = 1u << 16;
// Bytes that wait for a host that does not read; what is beyond is lost, as on a real line.
static const size_t WAITING = 1u << 16;

// Opens a terminal in raw mode. The other end stays open here, so that hosts may come and go.
static int open_terminal() {
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (master < 0 || grantpt(master) || unlockpt(master)) return -1;
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct termios raw;
    if (slave < 0 || tcgetattr(slave, &raw)) return -1;
    cfmakeraw(&raw);
    if (tcsetattr(slave, TCSANOW, &raw)) return -1;
    return master;
}

// Shifts bytes out, least significant bit first, between a start and a stop bit.
struct Sender {
    uint64_t divisor;
    unsigned frame = 0, bits = 0;
    uint64_t left = 0;

    bool busy() const { return bits != 0; }
    void send(uint8_t byte) {
        frame = 1u << 9 | unsigned(byte) << 1;
        bits = 10;
        left = divisor;
    }
    // Level of the line in this cycle.
    bool step() {
        if (!bits) return true;
        bool level = frame & 1;
        if (--left == 0) {
            frame >>= 1;
            bits--;
            left = divisor;
        }
        return level;
    }
};

// Takes bits in the middle; a byte whose stop bit is 0 is dropped.
struct Receiver {
    uint64_t divisor;
    unsigned frame = 0, bits = 0;
    uint64_t left = 0;

    // Takes the level of a cycle; the byte that it completes, or -1.
    int step(bool level) {
        if (!bits) {
            if (!level) {
                bits = 10;
                frame = 0;
                left = divisor / 2;
            }
            return -1;
        }
        if (left--) return -1;
        left = divisor - 1;
        frame |= unsigned(level) << (10 - bits);
        if (--bits || !level) return -1;
        return frame >> 1 & 0xFF;
    }
};

static bool input_ended() {
    struct pollfd fd = {STDIN_FILENO, POLLIN, 0};
    char unused;
    return poll(&fd, 1, 0) > 0 && read(STDIN_FILENO, &unused, 1) <= 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    Sender sender{strtoull(argv[1], nullptr, 10)};
    Receiver receiver{sender.divisor};
    int terminal = open_terminal();
    if (terminal < 0) {
        perror("board: no pseudo-terminal");
        return 1;
    }
    printf("%s\n", ptsname(terminal));
    fflush(stdout);

    VerilatedContext context;
    context.commandArgs(argc, argv);
    Vtidemill_top top{&context};
    top.uart_rx = 1;
    std::string in, out;
    size_t at = 0;
    uint64_t quiet = 0;
    for (uint64_t cycle = 0;; cycle++) {
        if (!sender.busy() && at == in.size() && cycle % LOOK == 0) {
            char bytes[4096];
            ssize_t n = read(terminal, bytes, sizeof bytes);
            if (n < 0 && errno != EAGAIN) return 1;
            in.assign(bytes, n > 0 ? n : 0);
            at = 0;
        }
        if (!sender.busy() && at < in.size()) {
            sender.send(in[at++]);
            quiet = 0;
        }
        top.uart_rx = sender.step();
        top.clk = 0;
        top.eval();
        top.clk = 1;
        top.eval();
        int byte = receiver.step(top.uart_tx);
        if (byte >= 0) {
            quiet = 0;
            if (out.size() < WAITING) out.push_back(char(byte));
        }
        if (!out.empty() && (cycle % LOOK == 0 || quiet == QUIET)) {
            ssize_t n = write(terminal, out.data(), out.size());
            if (n > 0) out.erase(0, n);
        }
        if (cycle % LOOK_ALIVE == 0 && input_ended()) break;
        if (quiet++ < QUIET) continue;
        short events = out.empty() ? POLLIN : POLLIN | POLLOUT;
        struct pollfd fds[] = {{terminal, events, 0}, {STDIN_FILENO, POLLIN, 0}};
        poll(fds, 2, -1);
        if (fds[1].revents && input_ended()) break;
        cycle += LOOK - 1 - cycle % LOOK;  // the next cycle looks
        quiet = QUIET - LOOK;              // and stands again if there was nothing to see
    }
    top.final();
    return 0;
}
