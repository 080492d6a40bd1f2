-- Refuses a request with more messages, input items or prompts than the limit. The frontend would
-- render the chat template for all of them: 16,000 empty messages take it 8 to 10 s.
-- Counts the strings, objects and arrays in each array that is a field of the request, except
-- `tools`. It does not count token IDs, and does not read compressed bodies.
local MOST = {max_messages}

local byte, find, sub = string.byte, string.find, string.sub

-- The place of the quote that ends the string which begins at `first`.
local function end_of_string(text, first)
  local last = first
  repeat
    last = find(text, '"', last + 1, true)
    if not last then return #text end
    local slash = last - 1
    while byte(text, slash) == 92 do slash = slash - 1 end
  until (last - slash) % 2 == 1
  return last
end

local function has_too_many(text)
  local depth, counts, elements, place, size, name = 0, false, 0, 1, #text, ""
  while place <= size do
    local char = byte(text, place)
    local opens = char == 123 or char == 91 -- { or [
    if counts and depth == 2 and (opens or char == 34) then
      elements = elements + 1
      if elements > MOST then return true end
    end
    if char == 34 then
      local last = end_of_string(text, place)
      if depth == 1 then name = sub(text, place, last) end
      place = last
    elseif opens then
      depth = depth + 1
      if depth == 2 then counts, elements = char == 91 and name ~= '"tools"', 0 end
    elseif char == 125 or char == 93 then -- } or ]
      depth = depth - 1
    end
    place = place + 1
  end
  return false
end

function envoy_on_request(handle)
  local body = handle:body()
  if body and has_too_many(body:getBytes(0, body:length())) then
    handle:respond({[":status"] = "413"}, "")
  end
end
