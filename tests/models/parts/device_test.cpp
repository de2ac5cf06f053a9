#include "models/parts/device.h"

#include <gtest/gtest.h>

#include "launch/check.h"

namespace draftsmith {
namespace {

TEST(Device, ReadsCpuAndRefusesOtherWords) {
  EXPECT_EQ(parse_device("cpu"), at::Device(at::kCPU));
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1000", "cpu:0"})
    EXPECT_THROW(parse_device(text), Error) << text;
}

TEST(Device, AGpuThatIsNotThereIsRefusedInPlainWords) {
  try {
    EXPECT_TRUE(parse_device("cuda:63").is_cuda());
    FAIL() << "a 64th GPU";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cuda"), std::string::npos);
  }
}

}  // namespace
}  // namespace draftsmith
