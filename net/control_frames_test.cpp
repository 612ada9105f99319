// SPDX-License-Identifier: BSL-1.0
#include "net/control_frames.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace neap::net {
namespace {

constexpr std::uint16_t control_port = 5002;
using Frame = std::array<std::byte, 80>;

/// Restores the ports, which are shared by all tests of this program.
class ControlFrames : public ::testing::Test {
 protected:
  ControlFrames() { control_ports = control_port; }
  ~ControlFrames() override { control_ports = before_; }

 private:
  std::uint32_t before_ = control_ports;
};

void put_u16(Frame& frame, std::size_t at, unsigned value) {
  frame[at] = static_cast<std::byte>(value >> 8);
  frame[at + 1] = static_cast<std::byte>(value);
}

/// A TCP segment in IPv4; `words`: of the IP header, 5 without options.
Frame segment(unsigned source, unsigned destination, unsigned words = 5) {
  Frame frame{};
  put_u16(frame, 12, 0x0800);
  frame[14] = static_cast<std::byte>(0x40 | words);
  frame[23] = std::byte{6};
  put_u16(frame, 14 + words * 4, source);
  put_u16(frame, 14 + words * 4 + 2, destination);
  return frame;
}

bool received(const Frame& frame, std::size_t bytes = 80) { return is_control_frame(frame.data(), bytes, LocalPort::destination); }
bool sent(const Frame& frame) { return is_control_frame(frame.data(), frame.size(), LocalPort::source); }

TEST_F(ControlFrames, TheLocalPortDecides) {
  EXPECT_TRUE(received(segment(9, control_port)));
  EXPECT_FALSE(received(segment(control_port, 9)));
  EXPECT_TRUE(sent(segment(control_port, 9)));
  EXPECT_FALSE(sent(segment(9, control_port)));
}

TEST_F(ControlFrames, OptionsOfIpMoveThePort) {
  for (unsigned words = 5; words <= 15; ++words) {
    EXPECT_TRUE(received(segment(9, control_port, words))) << words;
    EXPECT_TRUE(sent(segment(control_port, 9, words))) << words;
    EXPECT_FALSE(received(segment(control_port, 9, words))) << words;
  }
  Frame options = segment(9, 11211, 6);
  put_u16(options, 36, control_port);  // an option's bytes where a port would be without options
  EXPECT_FALSE(received(options));
}

TEST_F(ControlFrames, SegmentsOverIpv6AreControlsToo) {
  for (unsigned traffic_class = 0; traffic_class < 16; ++traffic_class) {
    Frame frame{};
    put_u16(frame, 12, 0x86DD);
    frame[14] = static_cast<std::byte>(0x60 | traffic_class);
    frame[20] = std::byte{6};
    put_u16(frame, 54, 9);
    put_u16(frame, 56, control_port);
    EXPECT_TRUE(received(frame) && !sent(frame)) << traffic_class;
    EXPECT_FALSE(received(frame, 57)) << traffic_class;
    frame[20] = std::byte{17};  // UDP
    EXPECT_FALSE(received(frame)) << traffic_class;
  }
}

TEST_F(ControlFrames, OtherFramesAreNotControls) {
  Frame other = segment(9, control_port);
  put_u16(other, 12, 0x0806);  // ARP
  EXPECT_FALSE(received(other));
  other = segment(9, control_port);
  other[23] = std::byte{17};  // UDP
  EXPECT_FALSE(received(other));
  other = segment(9, control_port);
  put_u16(other, 20, 0x2000);  // the first fragment of several
  EXPECT_FALSE(received(other));
  for (std::size_t bytes = 0; bytes < 38; ++bytes) EXPECT_FALSE(received(segment(9, control_port), bytes)) << bytes;
  EXPECT_TRUE(received(segment(9, control_port), 38));
}

TEST_F(ControlFrames, WithoutAPortNoFrameIsControls) {
  control_ports = 0;
  EXPECT_FALSE(received(segment(9, control_port)));
  EXPECT_FALSE(received(segment(0, 0)));
}

}  // namespace
}  // namespace neap::net
