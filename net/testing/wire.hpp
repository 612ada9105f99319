// SPDX-License-Identifier: BSL-1.0
// A simulated wire with a card at each end, for tests.
//
// Two unchanged stacks talk to each other over a wire that loses, repeats and reorders frames. The cards are as strict as real ones. They
// read a frame's pieces late, so that a sanitizer or a checksum detects memory freed or changed too early. They segment frames, check
// received checksums, and fill in checksums of sent frames from the pseudo-header's sum. Receive buffers must return on the receiving core.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "kernel/net_device.hpp"
#include "kernel/timer.hpp"

namespace neap::net::testing {

using Bytes = std::vector<std::byte>;

struct CardOptions {
  unsigned first_core = 0, cores = 1;
  MacAddress mac{0x02, 0, 0, 0, 0, 1};
  unsigned ring_frames = 256, pieces_max = 40;
  std::uint32_t frame_bytes_max = 1514;       ///< without FCS
  std::uint32_t receive_buffer_bytes = 2048;  ///< a longer frame, as RSC makes, arrives in several buffers
  bool checksum_offload = true;
  bool ip_header_offload = true;            ///< false: the stack completes IP headers, and received ones are not checked
  bool exact_buffers = false;               ///< a receive buffer ends with its frame, so that a sanitizer detects accesses behind it
  bool checks_fragments = false;            ///< wrongly reports every fragment's layer 4 checksum as good
  bool decides = false;                     ///< `receiving_core` returns `device_decides`; frames arrive by the same hash as without
  std::uint32_t tso_bytes_max = 0;          ///< 0: no TSO
  std::chrono::microseconds read_delay{0};  ///< time before the card reads a frame
  bool completes_late = false;              ///< reports completions only with the next received frame, or by `reap`
  double lost = 0, repeated = 0, late = 0;  ///< fractions of the sent frames
  unsigned seed = 1;
};

/// Returns `sum` plus the 16-bit words of `bytes` in network order, folded to 16 bits.
[[nodiscard]] std::uint16_t internet_sum(std::span<const std::byte> bytes, std::uint32_t sum = 0) noexcept;
/// Sets the valid checksums of a frame that a test has made: those of IPv4, of TCP or UDP (over IPv4 or IPv6), and of ICMPv6.
void fill_checksums(Bytes& frame);

class WireCard final : public NetDevice {
 public:
  explicit WireCard(CardOptions options);
  WireCard& operator=(WireCard&&) = delete;
  ~WireCard() override;

  static void join(WireCard& one, WireCard& other) noexcept;
  /// Calls `sink` for each sent frame, on the sending core. If `sink` returns false, the frame is dropped; it MAY take the bytes then. MUST
  /// be called before frames flow.
  void tap(std::function<bool(Bytes&)> sink) { tap_ = std::move(sink); }
  /// Delivers a frame from the test to the queue of `core`; if that is -1, to the queue that RSS selects. MAY be called on any core.
  void arrive(Bytes frame, int core = -1);
  /// Delivers frames to `core` in one event and one call, as a driver does with the frames of one interrupt.
  void arrive_together(std::vector<Bytes> frames, unsigned core);
  /// From now on no frames arrive.
  void cut() noexcept { cut_ = true; }
  void set_link(bool up);
  /// Makes the card's counters unreadable, as if the card were removed. Frames still pass.
  void set_gone(bool gone) noexcept { gone_ = gone; }
  void set_faults(double lost, double repeated, double late) noexcept;

  [[nodiscard]] std::uint64_t frames_sent() const noexcept;
  [[nodiscard]] std::uint64_t frames_arrived() const noexcept { return arrived_; }
  [[nodiscard]] std::uint64_t bad_checksums() const noexcept { return bad_; }  ///< frames that arrived with a bad checksum
  [[nodiscard]] std::uint64_t found_full() const noexcept { return full_; }
  [[nodiscard]] std::int64_t buffers_out() const noexcept { return buffers_out_; }  ///< receive buffers not returned yet
  /// Returns the number of multicast frames that the filter dropped.
  [[nodiscard]] std::uint64_t filtered() const noexcept { return filtered_; }
  [[nodiscard]] std::vector<MacAddress> multicast() const;
  [[nodiscard]] unsigned pieces_max_seen() const noexcept { return pieces_max_; }
  [[nodiscard]] std::uint64_t frames_segmented() const noexcept { return segmented_; }  ///< frames that the stack passed for segmentation
  [[nodiscard]] std::uint32_t bytes_max_seen() const noexcept { return bytes_max_; }    ///< longest frame that the stack passed

  // NetDevice
  [[nodiscard]] MacAddress mac() const noexcept override { return options_.mac; }
  [[nodiscard]] NetDeviceLimits limits() const noexcept override;
  [[nodiscard]] NetDeviceIdentity identity() const noexcept override {
    return {.name = "wire", .vendor_id = 0x8086, .device_id = 0x10fb, .revision = 1};
  }
  [[nodiscard]] bool link_up() const noexcept override { return link_; }
  [[nodiscard]] std::uint32_t link_megabits() const noexcept override { return link_ ? 10'000 : 0; }
  [[nodiscard]] FrameSender& attach(FrameReceiver& receiver) override;
  [[nodiscard]] unsigned receiving_core(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                        std::uint16_t destination_port) const noexcept override;
  [[nodiscard]] unsigned receiving_core_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                             std::uint16_t destination_port) const noexcept override;
  [[nodiscard]] task<void> set_multicast(std::vector<MacAddress> groups) override;
  void report_counters(std::optional<unsigned> core, const Emit& emit) const override;
  [[nodiscard]] task<Result<void>> report_device_counters(std::optional<unsigned> core, const Emit& emit) override;

 private:
  struct Posted {
    std::vector<TransmitPiece> pieces;
    TransmitOffload offload;
    void* token;
    std::size_t bytes = 0;
  };
  struct Queue final : FrameSender {
    explicit Queue(WireCard& its_card) : card(its_card) {}
    [[nodiscard]] TransmitResult transmit(TransmitPieces pieces, TransmitOffload offload, void* token) noexcept override {
      return card.transmit(*this, {.pieces = {pieces.begin(), pieces.end()}, .offload = offload, .token = token});
    }
    void reap() noexcept override;
    void complete(const Posted& posted);
    WireCard& card;
    std::atomic<FrameReceiver*> receiver{nullptr};
    std::vector<void*> completed;  ///< tokens that are reported late
    std::vector<void*> spare;      ///< empty; its memory serves for the next tokens
    std::deque<Posted> ring;
    bool engine_runs = false, said_full = false;
    Timer engine;
    std::minstd_rand random;
    Counter sent;
    std::unique_ptr<Bytes> held_back;  ///< a delayed frame
  };

  [[nodiscard]] Queue& queue() noexcept;
  [[nodiscard]] TransmitResult transmit(Queue& own, Posted posted) noexcept;
  void start_engine(Queue& own);
  void run_engine(Queue& own);
  [[nodiscard]] unsigned core_of_ipv4(std::uint32_t source_ip, std::uint32_t destination_ip, std::uint16_t source_port,
                                      std::uint16_t destination_port) const noexcept;
  [[nodiscard]] unsigned core_of_ipv6(Ipv6Octets source_ip, Ipv6Octets destination_ip, std::uint16_t source_port,
                                      std::uint16_t destination_port) const noexcept;
  [[nodiscard]] unsigned core_of(std::uint64_t source, std::uint64_t destination, std::uint32_t ports) const noexcept;
  /// Segments a frame as the 82599 does, and sends the segments (82599 datasheet 7.2.4).
  void send_segments(Queue& own, const Bytes& frame, TransmitOffload offload);
  void send(Queue& own, Bytes bytes);
  void pass(Bytes bytes);
  [[nodiscard]] bool accepts(const Bytes& frame);
  /// Appends a frame that has arrived for `core` to `received`, in buffers of its own.
  void receive(std::vector<ReceivedFrame>& received, unsigned core, const Bytes& frame);
  void pass(std::span<const ReceivedFrame> received, unsigned core) noexcept;

  CardOptions options_;
  WireCard* other_ = nullptr;
  std::function<bool(Bytes&)> tap_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::atomic<bool> link_{true}, cut_{false}, gone_{false};
  std::atomic<double> lost_, repeated_, late_;
  std::atomic<std::uint64_t> arrived_{0}, bad_{0}, full_{0}, filtered_{0}, own_reads_{0};
  mutable std::mutex groups_lock_;
  std::vector<MacAddress> groups_;
  std::atomic<std::int64_t> buffers_out_{0};
  std::atomic<unsigned> pieces_max_{0};
  std::atomic<std::uint32_t> bytes_max_{0};
  std::atomic<std::uint64_t> segmented_{0};
};

}  // namespace neap::net::testing
