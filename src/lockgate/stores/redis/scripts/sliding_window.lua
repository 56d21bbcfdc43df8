-- The sliding window. The specification is lockgate/core/sliding_window.py; this restates it for Redis.
--
-- The state of an organization is one string:
--   a fast path, valid while a hit joins the newest cell of every window: the instant before which hits
--     do, when the tightest window regains capacity, which one that is, and the fingerprint of the plan
--     for which this holds;
--   a tag; the last hit, common to all windows; the total, to which each admission adds its cost; what
--     remains in the tightest window of that plan;
--   the ids of the latest requests, newest first, each after its instant;
--   of each window: the total when it was empty, its oldest hit, the first hit of its newest cell, the
--     total before that one, and the bytes of its older cells;
--   these cells, oldest first;
--   the promises (promises.lua), if there are any;
--   and the quota leases that are out or ended lately (lockgate/core/quota_leases.py), if there are any:
--   of each its id, units, deadline and span, in the order of their grants.
-- The fast path holds beside the leases that are out, until the first of them ends: what remains is less
-- their units; and never beside promises. A release that knows neither finds an unknown tag while there are any.
-- Instants in cells and beside ids are kept modulo 2^40 microseconds (12 days). All else are whole
-- numbers up to 2^53, which doubles hold exactly.
--
-- Takes windows, the name of the string; plan, which is span, limit (infinite if there is none) and grain of
-- each window, packed, then the milliseconds that the state is kept, then k if a refusal keeps units (D47), then the
-- request; and the locals of request.lua and charge.lua.
--
-- Leaves reading and heads, with nil for reading if the request was sent before and may have been charged then
-- (D33); charged; repeated; and granted, the units of the lease that was granted.
-- All windows are charged or none is (W9). A function with these arguments and results would read
-- better; with it an admission takes 3 to 6 % more instructions of the server (callgrind; see
-- docs/design/archive/0010-redis-admission-is-one-script.md).

-- The tag: FORMAT, WIDE more where counts take 7 bytes, PROMISED more with promises, LEASED more with leases, and 256
-- a window.
-- include: window_state.lua
local LAST_ID = HEADS - ID
local FULL, AGE = 63, 2 ^ 40
local EXACT = 2 ^ 53 -- Below it a double holds every whole number.
local NARROW = 2 ^ 24 -- Few counts in cells need more than three bytes.
local PLENTY = 2 ^ 60 -- More than any limit leaves.

local number = (#plan - REQUEST - (#plan - REQUEST) % 24) / 24
local head_ends = HEADS + HEAD * number - 1

-- Arguments of a call become text, so the numbers for three windows, which most plans have, are text.
local kept = call('GETRANGE', windows, '0', number == 3 and '378' or head_ends - 1)
if kept == '' then
  kept = string.rep('\0', TAG - 1) .. write('<I2', FORMAT + 256 * number)
  kept = kept .. string.rep('\0', head_ends - TAG - 1)
end
local joins, reset, tightest, made_for, tag, last, total, remaining = read('<ddbc8I2di8d', kept)
repeated = string.find(kept, id, IDS, true)

if
  made_for == mark and now < joins and last <= now and cost <= remaining
  and total + cost < EXACT and not repeated and since == 0 and not asked
then
  charged, total, remaining = true, total + cost, remaining - cost
  local tail = cut(kept, IDS, LAST_ID - 1)
  -- No cell is opened, so one was opened less than the smallest grain ago: no expiry to prolong.
  local front = write('<I2di8dI5', tag, now, total, remaining, now % AGE)
  call('SETRANGE', windows, '25', front .. id .. tail)
  reading = write('<Bi8i8i8bbi8i8', ADMITTED, now, remaining, reset, tightest, -1, 0, total)
  heads = cut(kept, HEADS)
else
  local life = cut(plan, 24 * number + 1, -REQUEST - 1)
  local cell, size, flag, tail, holder = '<I5I3', 8, 0, '', nil
  if cut(life, -1) == 'k' then
    life = cut(life, 1, -2) + 1500 -- The last promise ends so long after its window, in milliseconds.
    holder = not limits and since >= 0 and (at == 1 and ARGV[2] or ARGV[1])
  end
  if tag ~= FORMAT + 256 * number then
    if tag % 256 >= LEASED then
      tag, flag = tag - LEASED, LEASED
    end
    if tag % LEASED >= PROMISED then
      tag, tail = tag - PROMISED, nil
    end
    if tag == FORMAT + WIDE + 256 * number then
      cell, size = '<I5I7', 12
    elseif tag ~= FORMAT + 256 * number then
      error('window state of format ' .. tag .. ' for ' .. number .. ' windows')
    end
  end
  local cells = call('GETRANGE', windows, number == 3 and '379' or head_ends, '-1')

  -- Return what remains of a window's cells: where they start, the units used and the oldest hit. A
  -- function of its arguments only: making upvalues would cost more than the call.
  local function pruned(cells, from, till, cell, size, last, edge, used)
    if last <= edge or used == 0 then
      return till, 0, 0
    end
    local read = struct.unpack
    for place = from, till - 1, size do
      local instant, count = read(cell, cells, place)
      instant = last - (last - instant) % 2 ^ 40
      if instant > edge then
        return place, used, instant
      end
      used = used - count
    end
    return till, used, last
  end

  -- The leases, packed; of those that are out their number, units and first deadline; the instants with units
  -- that count from now on; and the functions of quota_leases.lua.
  local leases, holders, out, first_end, longest = '', 0, 0, PLENTY, 0
  local late, is_changed, current_leases, with_late, granted_units
  if flag > 0 or asked then
    -- include: quota_leases.lua
  end
  -- The promises; the units that fit beside them at present, once they are known; the index of the window in which
  -- the fewest do.
  local list, room, least
  local lasting, packed_promises, take_due, room_at, promised
  if not tail then
    -- include: promises.lua
  end
  if flag > 0 or not tail then
    local from = 1
    for index = 1, number do
      from = from + read('<d', kept, HEADS + HEAD * index - 8)
    end
    local stored = cut(cells, from)
    cells = cut(cells, 1, from - 1)
    if not tail then
      local bytes = 8 + read('<d', stored)
      tail, stored = cut(stored, 1, bytes), cut(stored, bytes + 1)
      list = lasting(cut(tail, 9), now)
      if not list[1] then
        list, is_changed, tail = nil, true, since < 0 and tail or ''
      end
    end
    if flag > 0 then
      leases, late, holders, out, first_end, longest = current_leases(stored, asked, now)
      is_changed = is_changed or leases ~= stored
      if leases == '' then
        flag = 0
      else
        life = life + math.ceil(longest / 1000)
      end
    end
  end

  charged = since >= 0 and not repeated
  local knowable = true
  if charged and since > 0 then
    local instant, oldest = read('<I5c8', kept, LAST_ID)
    if oldest ~= '\0\0\0\0\0\0\0\0' then
      -- Its id is not among the latest. If ids were dropped since it was sent, it may be one of them.
      knowable = now - (now - instant) % AGE < since
      charged = knowable
    end
  end
  charged = charged and not barred

  local back, wide = last > now, false
  local rewrites = back or total + cost >= EXACT
  local unmoved = since == SETTLES and not late and { kept, cells, tag } -- Settling moves no cell.
  repeat
    if rewrites then
      -- Rewrite the whole state: the clock has stepped back, or a number has become too large.
      -- include: join_cells.lua
      local folding, older, from, most, fits = {}, {}, 1, 0, charged and not late
      fits = fits and (not list or room)
      local ends = math.min(last, now)
      for index = 1, number do
        local span, limit, grain = read('<ddd', plan, 24 * index - 23)
        local base, _, first, start, length = read('<i8dddd', kept, HEADS + HEAD * (index - 1))
        local used, count, list = total - base, total - start, {}
        for place = from, from + length - 1, size do
          local instant, many = read(cell, cells, place)
          instant = last - (last - instant) % AGE
          if back and instant >= now then
            count = count + many -- Cells in the future become one that ends now (W11).
          else
            list[#list + 1] = { instant, many }
          end
        end
        from = from + length
        if back then
          first = math.min(first, now)
          if grain > 0 and #list > FULL + 1 + math.floor(span / grain) then
            list = join_cells(list)
          end
        end
        local place, edge = 1, now - span
        if ends <= edge or used == 0 then
          used, first, count, list = 0, 0, 0, {}
        end
        while list[place] and list[place][1] <= edge do
          used, place = used - list[place][2], place + 1
        end
        fits, most = fits and cost <= limit - out - used, math.max(most, used)
        folding[index], older[index] = { used, first, count, place }, list
      end
      if fits then -- A window without a limit counts 2^53 - 1 units at most, those of the newest hits.
        most = math.min(most, EXACT - 1 - cost)
      end
      for index, list in ipairs(older) do
        local used, first, count, place = unpack(folding[index])
        if used > most then
          local excess = used - most
          while list[place] and list[place][2] <= excess do
            excess, place = excess - list[place][2], place + 1
          end
          if list[place] then
            list[place][2] = list[place][2] - excess
          else
            count = count - excess
          end
          used, first = most, most > 0 and first or 0
        end
        local oldest, left = used > 0 and ends or 0, {}
        for at = place, #list do
          left[#left + 1] = list[at]
          wide = wide or list[at][2] >= NARROW
        end
        oldest = left[1] and left[1][1] or oldest
        folding[index], older[index] = { used, oldest, first, count }, left
      end
      tag, cell, size = FORMAT + 256 * number, '<I5I3', 8
      if wide then
        tag, cell, size = tag + WIDE, '<I5I7', 12
      end
      last, total, heads = ends, most, ''
      for index, list in ipairs(older) do
        local used, oldest, first, count = unpack(folding[index])
        for place, one in ipairs(list) do
          list[place] = write(cell, one[1] % AGE, one[2])
        end
        list = table.concat(list)
        heads = heads .. write('<i8dddd', total - used, oldest, first, total - count, #list)
        older[index] = list
      end
      kept = string.rep('\0', TAG - 1) .. write('<I2di8d', tag, last, total, 0)
        .. cut(kept, IDS, HEADS - 1) .. heads
      cells, rewrites = table.concat(older), false
    end

    if late then
      local with, list, newest, most =
        with_late(late, kept, cells, cell, size, last, total, plan, number, now)
      if with then
        kept, cells, last, total, late = with, list, newest, most, nil
        rewrites = total + cost >= EXACT
      else
        wide, rewrites = true, true
      end
    end

    if list and not room and not rewrites and not repeated then
      if limits or since < 0 then
        plan =
          room_at(now, 1, list, out, kept, cells, cell, size, last, total, plan, number, now, true)
        room = PLENTY
      else
        take_due(list, holder, now, cost)
        room, least =
          room_at(now, 1, list, out, kept, cells, cell, size, last, total, plan, number, now)
        room = room[1]
        charged = charged and cost <= room
      end
      rewrites = charged and total + cost >= EXACT
    end

    if charged and not rewrites then
      -- Unchanged heads and cells are copied in runs: head and copied say how far that has come.
      local body, head, copied, from = '', HEADS, 1, 1
      heads, joins, remaining, reset, tightest = '', first_end, PLENTY, now, -1
      for index = 1, number do
        local span, limit, grain = read('<ddd', plan, 24 * index - 23)
        local at = HEADS + HEAD * (index - 1)
        local base, oldest, first, start, length = read('<i8dddd', kept, at)
        local till, is_same = from + length, true
        if oldest <= now - span then
          local place, used
          place, used, oldest =
            pruned(cells, from, till, cell, size, last, now - span, total - base)
          base, is_same = total - used, false
          if used == 0 then
            first, start = 0, total
          end
          if place > from then
            body = body .. cut(cells, copied, from - 1)
            copied, length = place, till - place
          end
        end
        local left = limit - out - (total + cost - base)
        if left < 0 then
          charged = false
          break
        end
        local is_full = length >= FULL * size
        if not ((is_full and now - first < grain) or (last == now and total > start)) then
          is_same = false
          if total > start then
            if total - start >= NARROW and size == 8 then
              wide, rewrites = true, true
              break
            end
            body = body .. cut(cells, copied, till - 1) .. write(cell, last % AGE, total - start)
            copied, length = till, length + size
            is_full = length >= FULL * size
          end
          first, start = now, total
        end
        if length == 0 and oldest ~= now then
          oldest, is_same = now, false
        end
        if not is_same then
          heads = heads .. cut(kept, head, at - 1)
            .. write('<i8dddd', base, oldest, first, start, length)
          head = at + HEAD
        end
        local leaves, join = oldest + span, is_full and first + grain or now + 1
        if leaves < join then
          join = leaves
        end
        if join < joins then
          joins = join
        end
        if left < remaining or (left == remaining and leaves > reset) then
          remaining, reset, tightest = left, leaves, index - 1
        end
        from = till
      end
      if charged and not rewrites then
        total = total + cost
        heads = heads .. cut(kept, head)
        if list then
          remaining, tail = math.min(remaining, room - cost), packed_promises(list)
          joins = tail == '' and joins or 0
        end
        reading =
          write('<Bi8i8i8bbi8i8', ADMITTED, now, remaining, reset, tightest, -1, 0, total)
        if asked and not limits and tail == '' then
          local name, units, lasts = read('<c8dd', asked)
          granted = granted_units(units, plan, number, heads, total, leases, holders, out)
          if granted then
            flag, remaining, joins = LEASED, remaining - granted, math.min(joins, now + lasts)
            leases = leases .. write('<c8ddd', name, granted, now + lasts, lasts)
            life = life + math.max(0, math.ceil((lasts - longest) / 1000))
          end
        end
        tag = tag + flag + (tail == '' and 0 or PROMISED)
        local front = write(
          '<ddbc8I2di8dI5', joins, reset, tightest, mark, tag, now, total, remaining, now % AGE
        ) .. id .. cut(kept, IDS, LAST_ID - 1)
        body = body .. cut(cells, copied) .. tail
        call('SET', windows, front .. heads .. body .. leases, 'PX', life)
      end
    end
  until not rewrites

  if not reading and knowable then
    local refused_by, longest, from = -1, 0, 1
    heads, remaining, reset, tightest = '', PLENTY, now, -1
    for index = 1, number do
      local span, limit = read('<dd', plan, 24 * index - 23)
      local base, oldest, _, _, length = read('<i8dddd', kept, HEADS + HEAD * (index - 1))
      local used, till = total - base, from + length
      if oldest <= now - span then
        from, used, oldest = pruned(cells, from, till, cell, size, last, now - span, used)
      end
      heads = heads .. write('<i8dddd', total - used, 0, 0, 0, 0)
      limit = limit - out
      if limit < 0 then
        limit = 0
      end
      local left = math.max(0, limit - used)
      local leaves = used > 0 and oldest + span or now
      if left < remaining or (left == remaining and leaves > reset) then
        remaining, reset, tightest = left, leaves, index - 1
      end
      if not repeated and used + cost > limit then
        local waits = span
        if cost <= limit then
          -- Sum the oldest cells until enough units would have left for this cost.
          local excess, until_then = used - (limit - cost), last
          for place = from, till - 1, size do
            local instant, count = read(cell, cells, place)
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
      from = till
    end
    local verdict = refused_by < 0 and ADMITTED or LIMITED
    local told = verdict
    if holder and not list and not repeated then
      -- include: promises.lua
      list, room = {}, remaining
    end
    if list and not repeated and since >= 0 then
      if room < cost then
        local is_promised
        refused_by = refused_by < 0 and least or refused_by
        remaining, verdict = math.max(0, math.min(remaining, room)), LIMITED
        longest, reset, is_promised = promised(
          list, holder, longest, reset, refused_by,
          out, kept, cells, cell, size, last, total, plan, number, now, cost
        )
        told = is_promised and PROMISED_UNITS or LIMITED
      end
      local packed = packed_promises(list)
      is_changed, tail = is_changed or packed ~= tail, packed
    end
    if (barred or verdict == LIMITED) and not repeated and first_end < reset then
      reset = first_end -- The units of a lease may come back then.
    end
    reading =
      write('<Bi8i8i8bbi8i8', told, now, remaining, reset, tightest, refused_by, longest, total)
    if unmoved then
      kept, cells, tag = unpack(unmoved)
    end
    if ((back and not unmoved) or is_changed) and since ~= PEEKS and not repeated then
      tag = tag + flag + (tail == '' and 0 or PROMISED)
      kept = string.rep('\0', TAG - 1) .. write('<I2', tag) .. cut(kept, TAG + 2)
      call('SET', windows, kept .. cells .. tail .. leases, 'PX', life)
    end
  end
end
