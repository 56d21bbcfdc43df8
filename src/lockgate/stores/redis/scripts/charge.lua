-- Charge the windows of a plan and named limits, all or none (W9): lockgate/core/limit_hits.py. Takes the
-- locals of request.lua, and windows and limits, the names of the string and of the hash, or nil for none.
--
-- The hash has the cells of each named window under its field: the units used, the oldest hit, the first
-- and the last hit of the newest cell and its count; then the older cells (fields.lua). The window of a
-- calendar period has a negative grain, -1 less the first instant of the period, at which all of its hits
-- count. The process has named the period by its own clock. If it is not that of now, the script ends
-- before it has changed anything, and answers with the instant.
--
-- Leaves: reading and heads, which together admission_codec.py unpacks; charged, whether the request was
-- charged now; and told, which the answer ends with: of named limits the index of the refusing window or
-- -1, its wait, the index of the first window for which there is no field left or -1, and of each window the
-- units used and the oldest hit; or else, if quota leases are asked for, the units granted. Ends the script
-- with nil if the request was sent before and may have been charged then (D33).

local asked = at < last_argument and ARGV[at] ~= '' and ARGV[at]
local reading, heads, charged, repeated, granted
local barred, told = false, ''
local spans, named, before, after, put, life, is_moved, counts
local refusing, longest_wait, lacking = -1, 0, -1

if limits then
  -- include: fields.lua
  spans, before, after, put, life, counts = ARGV[at + 1], {}, {}, put_fields, LIFE, ''
  named = #spans / 24
  local fresh, stored = 0, call('HMGET', limits, unpack(ARGV, at + 2, at + 1 + named))
  for index = 1, named do
    local span, limit, grain = read('<ddd', spans, 24 * index - 23)
    local used, oldest, first, last, count, older = 0, 0, 0, 0, 0, ''
    local moment, kept = now, stored[index]
    if grain < 0 then
      moment = -1 - grain
      if now < moment or now >= moment + span then
        return write('<Bi8', ANOTHER_PERIOD, now)
      end
      life = math.max(life, math.ceil((moment + span + DAY - now) / 1000))
    end
    if kept then
      used, oldest, first, last, count = read('<ddddd', kept)
      older = cut(kept, 41)
    else
      fresh = fresh + 1
      if lacking < 0 then
        lacking = index - 1
      end
    end
    local steps_back = last > moment
    if steps_back then
      is_moved = true
      used, oldest, first, last, count, older =
        moved_back(span, grain, used, oldest, first, last, count, older)
    end
    if grain < 0 and used + cost > LARGEST then -- Its only cell; the limit is soft.
      used = math.max(0, LARGEST - cost)
      count = used
    end
    used, oldest, first, last, count, older =
      pruned(moment - span, used, oldest, first, last, count, older)
    if steps_back then
      before[index] = write('<ddddd', used, oldest, first, last, count) .. older
    end
    counts = counts .. write('<dd', used, oldest)
    if used + cost > limit then
      local wait = moment + span - now
      if cost <= limit then
        wait = last_of(used - (limit - cost), last, count, older) + span - now
      end
      if wait > longest_wait then
        longest_wait, refusing = wait, index - 1
      end
    end
    used, oldest, first, last, count, older =
      counted(moment, cost, grain, used, oldest, first, last, count, older)
    after[index] = write('<ddddd', used, oldest, first, last, count) .. older
  end
  if fresh == 0 or call('HLEN', limits) + fresh <= FIELDS_AT_MOST then
    lacking = -1
  end
  if fresh > 0 and since ~= PEEKS then
    drop_empty_fields(limits)
  end
  barred = lacking >= 0 or refusing >= 0
  if barred then
    mark = '' -- The fast path would charge the plan.
  end
end

if windows then
  -- include: sliding_window.lua
  if not reading then
    return false
  end
else
  charged, heads, reading = since == 0 and not barred, '', write('<Bi8', ADMITTED, now)
end

if named then
  if repeated then -- It was admitted, by its own units.
    refusing, lacking = -1, -1
  elseif since ~= PEEKS then
    -- A refusal changes the cells only if the clock has stepped back.
    local changed = {}
    for index = 1, (charged or is_moved) and named or 0 do
      local value = (charged and after or before)[index]
      if value then
        changed[#changed + 1] = ARGV[at + 1 + index]
        changed[#changed + 1] = value
      end
    end
    put(limits, changed, life)
  end
  if barred and not repeated then
    reading = write('B', LIMITED) .. cut(reading, 2)
  end
  if charged then
    counts = ''
    for index = 1, named do
      counts = counts .. cut(after[index], 1, 16)
    end
  end
  told = write('<bdb', refusing, longest_wait, lacking) .. counts
elseif asked then
  told = write('<d', granted or 0)
end
