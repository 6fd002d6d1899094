// Attaches and detaches with the slot that was linked to it; exits 0 when that worked.
void* slot_exchange(void* record);

int main(void) {
  static char record[28];
  const void* before = slot_exchange(record);
  const void* between = slot_exchange(0);
  return before == 0 && between == record ? 0 : 1;
}
