#include "sys/processor.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include "sys/native_arch.h"

namespace ctxconf::sys {
namespace {

TEST(Processor, OursHasBothNames) {
  utsname host{};
  ASSERT_EQ(uname(&host), 0);
  const Processor& ours = processor_of_elf(kNativeMachine);
  EXPECT_EQ(ours.machine, kNativeMachine);
  EXPECT_TRUE(ours.knows_tls_relocations);
  EXPECT_EQ(&processor_of_uname(host.machine), &ours) << host.machine;
}

TEST(Processor, StoresStayInOrderOnX86Alone) {
  EXPECT_TRUE(processor_of_uname("x86_64").keeps_store_order);
  EXPECT_FALSE(processor_of_uname("aarch64").keeps_store_order);
}

TEST(Processor, AllFactsAboutAnUnknownOneAreFalse) {
  for (const Processor* p :
       {&processor_of_elf(EM_RISCV), &processor_of_uname("riscv64"), &processor_of_uname("")}) {
    EXPECT_EQ(p->name, "");
    EXPECT_FALSE(p->keeps_store_order);
    EXPECT_FALSE(p->knows_tls_relocations);
    EXPECT_FALSE(p->shows_local_dynamic);
    EXPECT_STREQ(p->tlsdesc_option, "");
  }
}

}  // namespace
}  // namespace ctxconf::sys
