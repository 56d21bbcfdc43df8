-- The marks of batches of usage, in a field of a hash: which batch is counted for each writer, so that a
-- repetition counts nothing (core/usage_marks.py).
--
-- A mark: the writer in 16 bytes, the number of its latest batch, and the instant. The latest is last.
--
-- include: time.lua

local MARKS, MARK, WRITER = 'marks', 32, 16
local MARKS_AT_MOST, MARKS_KEPT = 1024, 7 * 86400 * 1000000

-- Mark a batch in the first of KEYS; return false if it is counted already.
local function mark(writer, number)
  local marks = redis.call('HGET', KEYS[1], MARKS) or ''
  local from = string.find(marks, writer, 1, true)
  while from and from % MARK ~= 1 do
    from = string.find(marks, writer, from + 1, true)
  end
  if from then
    if tonumber(number) <= struct.unpack('<d', marks, from + WRITER) then
      return false
    end
    marks = string.sub(marks, 1, from - 1) .. string.sub(marks, from + MARK)
  end
  local now = instant('')
  local first = math.max(1, #marks - (MARKS_AT_MOST - 1) * MARK + 1)
  while first < #marks and struct.unpack('<d', marks, first + WRITER + 8) <= now - MARKS_KEPT do
    first = first + MARK
  end
  marks = string.sub(marks, first) .. writer .. struct.pack('<dd', number, now)
  redis.call('HSET', KEYS[1], MARKS, marks)
  return true
end
