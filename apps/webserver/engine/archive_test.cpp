// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/archive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace neap::webserver {
namespace {

using Block = std::vector<std::byte>;

TEST(Archive, FilesAndFoldersAreFound) {
  const Block block = make_archive({{"server.js", "main"}, {"lib/users.js", ""}, {"lib-old/a", "b"}, {"a", "1"}}, "server.js");
  const auto archive = Archive::open(block);
  ASSERT_TRUE(archive);
  EXPECT_EQ(archive->size(), 4U);
  EXPECT_EQ(archive->entry(), "server.js");
  EXPECT_EQ(archive->find("server.js"), "main");
  EXPECT_EQ(archive->find("lib/users.js"), "");
  EXPECT_EQ(*archive->find("a")->end(), '\0');
  for (const char* const missing : {"", "b", "lib", "lib/", "/a", "server.jsx", "z"}) EXPECT_FALSE(archive->find(missing)) << missing;
  EXPECT_TRUE(archive->has_folder(""));
  EXPECT_TRUE(archive->has_folder("lib"));
  EXPECT_FALSE(archive->has_folder("li"));
  EXPECT_FALSE(archive->has_folder("a"));
  EXPECT_FALSE(archive->has_folder(std::string(5000, 'x')));
  EXPECT_FALSE(Archive().has_folder(""));
}

TEST(Archive, PathsThatLeaveTheArchiveOrCollideAreRefused) {
  for (const char* const path :
       {"", "/a", "a/", "a//b", "./a", "a/../b", "a/.", "..", "a\\b", "a\nb", "\xC0\xAF", "\xED\xA0\x80", "\xFF", "\xE2\x82"}) {
    EXPECT_FALSE(Archive::open(make_archive({{path, ""}}, path))) << path;
  }
  EXPECT_FALSE(Archive::open(make_archive({{std::string(1025, 'a'), ""}}, std::string(1025, 'a'))));
  EXPECT_TRUE(Archive::open(make_archive({{"ä/€/😀..js", ""}}, "ä/€/😀..js")));
  EXPECT_FALSE(Archive::open(make_archive({{"a", ""}, {"a/b", ""}}, "a")));
  EXPECT_FALSE(Archive::open(make_archive({{"a", ""}, {"a-b", ""}, {"a/b/c", ""}}, "a")));
  EXPECT_FALSE(Archive::open(make_archive({{"a", ""}, {"a", ""}}, "a")));
}

TEST(Archive, EachWrongNumberIsRefused) {
  const Block good = make_archive({{"a", "content"}, {"b", "more"}}, "b");
  ASSERT_TRUE(Archive::open(good));
  const auto with = [&](std::size_t offset, std::uint32_t number) {
    Block block = good;
    std::memcpy(block.data() + offset, &number, sizeof number);
    return Archive::open(block).has_value();
  };
  EXPECT_FALSE(with(0, 0));
  for (const std::uint32_t count : {0U, 100'001U, 0xFFFFFFFFU}) EXPECT_FALSE(with(8, count));
  EXPECT_FALSE(with(12, 2));
  for (std::size_t field = 0; field < 8; ++field) EXPECT_FALSE(with(16 + 4 * field, 0xFFFFFFFFU)) << field;
  EXPECT_FALSE(with(16 + 12, 6));  // no zero byte follows
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) EXPECT_FALSE(Archive::open(std::span(good).first(bytes))) << bytes;
  Block padded = good;
  padded.resize(padded.size() + 4096);
  EXPECT_TRUE(Archive::open(padded));
}

// A changed archive is refused, or all of its files lie inside of it (the address sanitizer reads along).
TEST(Archive, ChangedBytesNeverLeadOutOfTheBlock) {
  std::mt19937 random(1);
  std::size_t opened = 0;
  for (unsigned round = 0; round < 20'000; ++round) {
    Block block =
        make_archive({{"lib/a.js", "aaaa"}, {"lib/b.js", "bb"}, {"package.json", "{}"}, {"x/y/z", std::string(40, 'z')}}, "lib/a.js");
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      block[random() % (random() % 4 != 0 ? 80 : block.size())] = static_cast<std::byte>(random() % 3 == 0 ? random() : random() % 8);
    }
    if (random() % 4 == 0) block.resize(random() % block.size());
    const auto archive = Archive::open(block);
    if (!archive) continue;
    ++opened;
    std::size_t sum = archive->entry().size();
    for (std::size_t index = 0; index < archive->size(); ++index) {
      for (const char letter : archive->path(index)) sum += static_cast<unsigned char>(letter);
      for (const char letter : archive->content(index)) sum += static_cast<unsigned char>(letter);
      EXPECT_EQ(archive->find(archive->path(index))->data(), archive->content(index).data());
    }
    EXPECT_GT(sum, 0U);
  }
  EXPECT_GT(opened, 100U);
}

}  // namespace
}  // namespace neap::webserver
