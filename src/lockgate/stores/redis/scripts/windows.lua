-- The sliding window. The specification is lockgate/rules/windows.py: this says it again for Redis.
--
-- The state of an organization is one string: a head for each window, the ids of the latest
-- requests, and the older cells of each window, oldest first. Instants in cells and ids are kept
-- modulo 2^40 microseconds (12 days); all else are doubles, exact up to 2^53.
--
-- From above it takes these: windows, the name of the string; plan, which is span, limit (infinite
-- where there is none) and grain of each window; life, the milliseconds that the state is kept; now;
-- cost; id, the request's own, or nil to look only; since, an instant before it was sent first, or 0
-- when it is. It leaves these: reading, or nil where nobody can know any more if the request, which
-- was sent before, was charged then; and charges, whether it is charged now.
--
-- A reading is: allowed, now, remaining, reset, tightest, refused_by, wait, and what each window
-- uses. Indices count from 0, and -1 stands for none.
--
-- Every request runs this, so it is written to be cheap: numbers in arrays, and functions only where
-- something is unusual, since to make a few costs as much as to apply the rule.
local FORMAT, FULL, AGE = 1, 63, 2 ^ 40
local ID, IDS = 13, 16
local NARROW = 2 ^ 24 -- Few counts in cells need more than three bytes.

local number = math.floor(#plan / 3) -- The last in plan is where unpack stopped.
local start = 5 + 45 * number -- of the ids
local heads -- of each window: used, oldest, first, last, count, bytes of a count, bytes of the cells
local older -- cells of each window; nil while nobody has to look at them
local ids = '' -- of the latest requests, each with its instant
local reading
local charges, changed = true, false

local kept = redis.call('GETRANGE', windows, 0, start + ID * IDS - 2)
if kept ~= '' then
  local format, many, length = struct.unpack('<BBI2', kept)
  if format ~= FORMAT or many ~= number then
    error('window state of format ' .. format .. ' with ' .. many .. ' windows')
  end
  heads = { struct.unpack('<' .. string.rep('dddddBI4', number), kept, 5) }
  ids = string.sub(kept, start, start + length - 1)
else
  heads, older = {}, {}
  for index = 1, number do
    local at = 7 * index - 7
    heads[at + 1], heads[at + 2], heads[at + 3], heads[at + 4], heads[at + 5] = 0, 0, 0, 0, 0
    heads[at + 6], heads[at + 7], older[index] = 3, 0, ''
  end
end

local known = id and string.find(ids, id, 1, true)
local unusual = not id or known or since > 0
local joins = #ids == ID * IDS -- Whether the hit joins the newest cell of each window.
for index = 1, number do
  local at = 7 * index - 7
  local span, grain, last, width = plan[3 * index - 2], plan[3 * index], heads[at + 4], heads[at + 6]
  if last > now or heads[at + 2] <= now - span or heads[at + 1] + cost > plan[3 * index - 1] then
    unusual = true
  end
  local many = heads[at + 7] >= FULL * (5 + width)
  if not ((many and now - heads[at + 3] < grain) or (last == now and heads[at + 5] > 0)) then
    joins = false
  end
end

if not older and (unusual or not joins) then
  local cells, at = redis.call('GETRANGE', windows, start + #ids - 1, -1), 1
  older = {}
  for index = 1, number do
    local length = heads[7 * index]
    older[index] = string.sub(cells, at, at + length - 1)
    at = at + length
  end
end

if unusual then
  local CELL = { [3] = '<I5I3', [7] = '<I5I7' }

  -- The cells as they stand now: none in the future, none that has left the window.
  local function settle(index, now)
    local at = 7 * index - 7
    local span, grain = plan[3 * index - 2], plan[3 * index]
    local last, width = heads[at + 4], heads[at + 6]
    local form, size, cells = CELL[width], 5 + width, older[index]
    if last > now then
      -- The clock has stepped back: what lay in the future becomes one cell that ends now.
      local kept = {}
      for place = 1, #cells, size do
        local instant, count = struct.unpack(form, cells, place)
        instant = last - (last - instant) % AGE
        if instant >= now then
          heads[at + 5] = heads[at + 5] + count
        else
          kept[#kept + 1] = { instant, count }
        end
      end
      if grain > 0 and #kept > FULL + 1 + math.floor(span / grain) then
        local folded = {}
        for place = 1, #kept, 2 do
          local one, two = kept[place], kept[place + 1]
          folded[#folded + 1] = two and { two[1], one[2] + two[2] } or one
        end
        kept = folded
        heads[at + 2] = kept[1][1]
      end
      local packed = {}
      for _, cell in ipairs(kept) do
        if cell[2] >= NARROW then
          heads[at + 6] = 7
        end
      end
      for place, cell in ipairs(kept) do
        packed[place] = struct.pack(CELL[heads[at + 6]], cell[1] % AGE, cell[2])
      end
      older[index] = table.concat(packed)
      heads[at + 2] = math.min(heads[at + 2], now)
      heads[at + 3] = math.min(heads[at + 3], now)
      heads[at + 4] = now
      last, width, cells = now, heads[at + 6], older[index]
      form, size = CELL[width], 5 + width
    end
    local edge = now - span
    if last <= edge or heads[at + 1] == 0 then
      heads[at + 1], heads[at + 2], heads[at + 3], heads[at + 4], heads[at + 5] = 0, 0, 0, 0, 0
      heads[at + 6], older[index] = 3, ''
      return
    end
    if heads[at + 2] <= edge then
      local place, oldest, used = 1, last, heads[at + 1]
      while place < #cells do
        local instant, count = struct.unpack(form, cells, place)
        instant = last - (last - instant) % AGE
        if instant > edge then
          oldest = instant
          break
        end
        used = used - count
        place = place + size
      end
      older[index] = string.sub(cells, place)
      heads[at + 1], heads[at + 2] = used, oldest
    end
  end

  -- The reading of windows that are settled.
  local function judge(now, cost)
    local remaining, reset, tightest, refused_by, longest = -1, now, -1, -1, 0
    local reading = { 0, now, 0, 0, 0, 0, 0 }
    for index = 1, number do
      local at = 7 * index - 7
      local span, limit, used = plan[3 * index - 2], plan[3 * index - 1], heads[at + 1]
      reading[index + 7] = used
      if limit < math.huge then
        local left = math.max(0, limit - used)
        local leaves = used > 0 and heads[at + 2] + span or now
        if remaining < 0 or left < remaining or (left == remaining and leaves > reset) then
          remaining, reset, tightest = left, leaves, index - 1
        end
        if used + cost > limit then
          local last, waits = heads[at + 4], span
          if cost <= limit then
            -- The oldest cells, until enough would have left for this cost.
            local excess, until_then = used + cost - limit, last
            local form, cells = CELL[heads[at + 6]], older[index]
            for place = 1, #cells, 5 + heads[at + 6] do
              local instant, count = struct.unpack(form, cells, place)
              excess = excess - count
              if excess <= 0 then
                until_then = last - (last - instant) % AGE
                break
              end
            end
            waits = until_then + span - now
          end
          if waits > longest then
            longest, refused_by = waits, index - 1
          end
        end
      end
    end
    reading[1] = refused_by < 0 and 1 or 0
    reading[3], reading[4], reading[5], reading[6], reading[7] =
      remaining, reset, tightest, refused_by, longest
    return reading
  end


  local back, fits = false, true
  for index = 1, number do
    local at = 7 * index - 7
    back = back or heads[at + 4] > now
    settle(index, now)
    fits = fits and heads[at + 1] + cost <= plan[3 * index - 1]
  end
  if not id then
    charges, reading = false, judge(now, cost)
  elseif known then
    charges, reading = false, judge(now, 0)
    reading[1], reading[6], reading[7] = 1, -1, 0
  elseif since > 0 and #ids >= ID * IDS then
    -- It is not among the latest ones. If others came since that are not either, it may have been.
    local oldest = struct.unpack('<I5', ids, 9)
    charges = now - (now - oldest) % AGE < since
  end
  if charges and not fits then
    charges, changed, reading = false, back, judge(now, cost)
  end
end

if charges then
  local remaining, reset, tightest = -1, now, -1
  reading = { 1, now, 0, 0, 0, -1, 0 }
  for index = 1, number do
    local at, span = 7 * index - 7, plan[3 * index - 2]
    local last, count, width = heads[at + 4], heads[at + 5], heads[at + 6]
    local size = older and #older[index] or heads[at + 7]
    local many = size >= FULL * (5 + width)
    if (many and now - heads[at + 3] < plan[3 * index]) or (last == now and count > 0) then
      heads[at + 5] = count + cost
    else
      if count >= NARROW and width == 3 then
        local cells, wide = older[index], {}
        for place = 1, #cells, 8 do
          wide[#wide + 1] = struct.pack('<I5I7', struct.unpack('<I5I3', cells, place))
        end
        older[index], width, heads[at + 6] = table.concat(wide), 7, 7
      end
      if count > 0 then
        local cell = struct.pack(width == 3 and '<I5I3' or '<I5I7', last % AGE, count)
        older[index] = older[index] .. cell
        size = #older[index]
      end
      heads[at + 3], heads[at + 5] = now, cost
    end
    local used = heads[at + 1] + cost
    heads[at + 1], heads[at + 4] = used, now
    if size == 0 then
      heads[at + 2] = now
    end
    reading[index + 7] = used
    local left = plan[3 * index - 1] - used
    if left < math.huge then
      local leaves = heads[at + 2] + span
      if remaining < 0 or left < remaining or (left == remaining and leaves > reset) then
        remaining, reset, tightest = left, leaves, index - 1
      end
    end
  end
  reading[3], reading[4], reading[5] = remaining, reset, tightest
  ids = string.sub(ids, #ids >= ID * IDS and ID + 1 or 1) .. id .. struct.pack('<I5', now % AGE)
  changed = true
end

if changed then
  for index = 1, older and number or 0 do
    heads[7 * index] = #older[index]
  end
  local form = '<BBI2' .. string.rep('dddddBI4', number)
  local packed = struct.pack(form, FORMAT, number, #ids, unpack(heads, 1, 7 * number)) .. ids
  if older then
    redis.call('SET', windows, packed .. table.concat(older), 'PX', life)
  else
    -- No cell was opened, so one was less than the smallest grain ago: the string lives as long.
    redis.call('SETRANGE', windows, 0, packed)
  end
end
