-- Part of sliding_window.lua: grant a quota lease after a charge. The specification is granted() of
-- lockgate/core/quota_leases.py. Sets granted, leases, remaining, joins, flag and life.
local SHARE, LEAST, LEASES_AT_MOST = 50, 3, 64
local name, units, span = read('<c8dd', asked)
if #leases / LEASE >= LEASES_AT_MOST then
  units = 0
end
holders = holders + 1
for index = 1, number do
  local _, limit = read('<dd', plan, 24 * index - 23)
  if limit < math.huge then
    -- The remainder of math.fmod is exact, that of % is not beyond 2^52.
    local left = limit - out - (total - read('<i8', heads, HEAD * (index - 1) + 1))
    units = math.min(
      units,
      (left - math.fmod(left, holders)) / holders,
      (limit - math.fmod(limit, SHARE)) / SHARE - out
    )
  end
end
if units >= LEAST then
  granted, flag, remaining = units, LEASED, remaining - units
  leases = leases .. write('<c8ddd', name, units, now + span, span)
  joins = math.min(joins, now + span)
  life = life + math.max(0, math.ceil((span - longest) / 1000))
end
