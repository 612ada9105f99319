// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/loader.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/panic.hpp"

namespace neap::tpcc {
namespace {

constexpr unsigned rows_per_step = 256;
constexpr std::int64_t first_payment = 1'000;  // C_YTD_PAYMENT and H_AMOUNT: 10.00
constexpr std::string_view original = "ORIGINAL";

void draw_address(Random& random, Address& address) noexcept {
  (void)random_letters(random, 10, 20, address.street_1.bytes);
  (void)random_letters(random, 10, 20, address.street_2.bytes);
  (void)random_letters(random, 10, 20, address.city.bytes);
  (void)random_letters(random, 2, 2, address.state.bytes);
  address.zip.assign("000011111");  // clause 4.3.2.7
  (void)random_digits(random, 4, 4, std::span(address.zip.bytes).first(4));
}

/// I_DATA and S_DATA: a tenth of the rows has "ORIGINAL" at a random place.
void draw_data(Random& random, Text<50>& data) noexcept {
  const std::uint32_t bytes = random_letters(random, 26, 50, data.bytes);
  if (!random.percent(10)) return;
  std::memcpy(data.bytes + random.between(0, bytes - static_cast<std::uint32_t>(original.size())), original.data(), original.size());
}

}  // namespace

Loader::Loader(Database& database, std::uint64_t seed, unsigned core, unsigned cores) noexcept
    : database_(database), seed_(seed), constants_(NurandConstants::for_load(seed)) {
  const Scale& scale = database.scale;
  require(scale_fits(scale), "the scale fits the keys", scale.warehouses);
  require(core < cores, "a loader's core exists", core);
  const auto share = [&](std::uint64_t count, unsigned before) { return static_cast<std::uint32_t>(count * before / cores); };
  if (scale.warehouses < cores) {
    const bool loads = core < scale.warehouses;
    warehouse_ = loads ? core + 1 : 1;
    warehouse_last_ = loads ? core + 1 : 0;
  } else {
    const HomeWarehouses home = home_warehouses(scale, core, cores);
    warehouse_ = home.first;
    warehouse_last_ = home.last;
  }
  enter(Phase::items, share(scale.items, core) + 1, share(scale.items, core + 1));
}

Loader::Progress Loader::step() noexcept {
  for (unsigned row = 0; row < rows_per_step; ++row) {
    while (next_ > last_ && phase_ != Phase::done) leave_phase();
    if (phase_ == Phase::done) return Progress::done;
    if (!load_row()) return Progress::no_memory;
    ++next_;
  }
  return Progress::more;
}

bool Loader::load_row() noexcept {
  switch (phase_) {
    case Phase::items:
      return load_item(next_);
    case Phase::warehouse:
      return load_warehouse();
    case Phase::stock:
      return load_stock(next_);
    case Phase::customers:
      return load_customer(next_);
    case Phase::orders:
      return (next_ > 1 || shuffle_customers()) && load_order(next_);
    case Phase::done:
      break;
  }
  return true;
}

void Loader::enter(Phase phase, std::uint32_t first, std::uint32_t last) noexcept {
  phase_ = phase;
  next_ = first;
  last_ = last;
}

/// The order of the phases: items, then for each warehouse its row with its districts, its stock, and its districts' customers and orders.
void Loader::leave_phase() noexcept {
  const Scale& scale = database_.scale;
  const auto enter_warehouse = [&] {
    if (warehouse_ > warehouse_last_) return enter(Phase::done, 1, 0);
    district_ = 1;
    enter(Phase::warehouse, 1, 1);
  };
  switch (phase_) {
    case Phase::items:
      return enter_warehouse();
    case Phase::warehouse:
      return enter(Phase::stock, 1, scale.items);
    case Phase::stock:
      return enter(Phase::customers, 1, scale.customers_per_district);
    case Phase::customers:
      return enter(Phase::orders, 1, scale.orders_per_district);
    case Phase::orders:
      if (++district_ <= scale.districts) return enter(Phase::customers, 1, scale.customers_per_district);
      ++warehouse_;
      return enter_warehouse();
    case Phase::done:
      return;
  }
}

bool Loader::load_item(std::uint32_t item) noexcept {
  Random random = random_for(Phase::items, item_key(item));
  Item row{};
  row.image = random.between(1, 10'000);
  row.price = random.between(100, 10'000);
  (void)random_letters(random, 14, 24, row.name.bytes);
  draw_data(random, row.data);
  return database_.item.load(item_key(item), row);
}

/// D_YTD is the sum of the district's first payments, and W_YTD is the sum over its districts: 30,000.00 and 300,000.00 at full scale.
bool Loader::load_warehouse() noexcept {
  const Scale& scale = database_.scale;
  Random random = random_for(Phase::warehouse, warehouse_key(warehouse_));
  const std::int64_t district_ytd = first_payment * scale.customers_per_district;
  Warehouse row{};
  row.ytd = district_ytd * scale.districts;
  row.tax = random.between(0, 2'000);
  (void)random_letters(random, 6, 10, row.name.bytes);
  draw_address(random, row.address);
  if (!database_.warehouse.load(warehouse_key(warehouse_), row)) return false;
  for (std::uint32_t number = 1; number <= scale.districts; ++number) {
    District district{};
    district.ytd = district_ytd;
    district.next_order = scale.orders_per_district + 1;
    district.tax = random.between(0, 2'000);
    (void)random_letters(random, 6, 10, district.name.bytes);
    draw_address(random, district.address);
    if (!database_.district.load(district_key(warehouse_, number), district)) return false;
  }
  return true;
}

bool Loader::load_stock(std::uint32_t item) noexcept {
  const Key<1> key = stock_key(warehouse_, item);
  Random random = random_for(Phase::stock, key);
  Stock row{};
  row.quantity = static_cast<std::int32_t>(random.between(10, 100));
  StockData data{};
  for (Text<24>& information : data.district) (void)random_letters(random, 24, 24, information.bytes);
  draw_data(random, data.data);
  return database_.stock.load(key, row) && database_.stock_data.load(key, data);
}

bool Loader::load_customer(std::uint32_t customer) noexcept {
  const Key<1> key = customer_key(warehouse_, district_, customer);
  Random random = random_for(Phase::customers, key);
  Customer row{};
  row.balance = -first_payment;
  row.ytd_payment = first_payment;
  row.payments = 1;
  row.discount = random.between(0, 5'000);
  row.credit.assign(random.percent(10) ? "BC" : "GC");
  row.middle.assign("OE");
  row.last = last_name(customer <= last_names ? customer - 1 : nurand(random, 255, constants_.last_name, 0, last_names - 1));
  (void)random_letters(random, 8, 16, row.first.bytes);

  CustomerInformation information{};
  information.credit_limit = 5'000'000;
  information.since = load_date_us;
  draw_address(random, information.address);
  (void)random_digits(random, 16, 16, information.phone.bytes);

  CustomerData data{};
  data.bytes = random_letters(random, 300, 500, data.text);

  History history{};
  history.date = load_date_us;
  history.amount = first_payment;
  history.customer_warehouse = history.warehouse = warehouse_;
  history.customer_district = history.district = static_cast<std::uint8_t>(district_);
  history.customer = customer;
  (void)random_letters(random, 12, 24, history.data.bytes);

  return database_.customer.load(key, row) && database_.customer_information.load(key, information) &&
         database_.customer_data.load(key, data) &&
         database_.customer_by_name.load(customer_by_name_key(warehouse_, district_, row.last, row.first, customer), Reference{key[0]}) &&
         database_.history.load(key, history);
}

/// Clause 4.3.3.1: O_C_ID is taken in order from a random permutation of the district's customers.
bool Loader::shuffle_customers() noexcept {
  const std::uint32_t count = database_.scale.customers_per_district;
  if (shuffled_ == nullptr) shuffled_.reset(new (std::nothrow) std::uint32_t[count]);
  if (shuffled_ == nullptr) return false;
  Random random = random_for(Phase::orders, order_key(warehouse_, district_, 0));
  for (std::uint32_t at = 0; at < count; ++at) {
    const std::uint32_t other = random.between(0, at);
    shuffled_[at] = shuffled_[other];
    shuffled_[other] = at + 1;
  }
  return true;
}

bool Loader::load_order(std::uint32_t order) noexcept {
  const Key<1> key = order_key(warehouse_, district_, order);
  Random random = random_for(Phase::orders, key);
  const bool delivered = order <= delivered_orders(database_.scale);
  Order row{};
  row.entry_date = load_date_us;
  row.customer = shuffled_[order - 1];
  row.carrier = delivered ? static_cast<std::uint8_t>(random.between(1, 10)) : std::uint8_t{0};
  row.lines = static_cast<std::uint8_t>(random.between(lines_min, lines_max));
  row.all_local = 1;
  if (!database_.order.load(key, row) ||
      !database_.order_by_customer.load(order_by_customer_key(warehouse_, district_, row.customer, order), Reference{key[0]}) ||
      (!delivered && !database_.new_order.load(key, NewOrder{})))
    return false;
  for (std::uint32_t number = 1; number <= row.lines; ++number) {
    OrderLine line{};
    line.delivery_date = delivered ? load_date_us : 0;
    line.item = random.between(1, database_.scale.items);
    line.supply_warehouse = warehouse_;
    line.amount = delivered ? 0 : random.between(1, 999'999);
    line.quantity = 5;
    (void)random_letters(random, 24, 24, line.district_information.bytes);
    if (!database_.order_line.load(order_line_key(warehouse_, district_, order, number), line)) return false;
  }
  return true;
}

bool load(Database& database, std::uint64_t seed, unsigned core, unsigned cores) noexcept {
  Loader loader(database, seed, core, cores);
  for (;;) {
    const Loader::Progress progress = loader.step();
    if (progress != Loader::Progress::more) return progress == Loader::Progress::done;
  }
}

}  // namespace neap::tpcc
