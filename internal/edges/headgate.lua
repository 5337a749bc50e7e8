-- Asks headgate whether a request may pass, and says so in txn.headgate_in. Without it, also after an
-- error here, the request goes to the backend headgate. If headgate does not answer in time, also when
-- HAProxy asks again, txn.headgate_silent is true.
local own = {["content-length"] = true, ["transfer-encoding"] = true, ["connection"] = true,
             ["upgrade"] = true, ["expect"] = true, ["x-original-url"] = true, ["headgate-pass"] = true}

core.register_action("headgate", {"http-req"}, function(txn, decide)
    local headers, lines = {}, 0
    for name, values in pairs(txn.http:req_get_headers()) do
        if not own[name] then
            headers[name] = {}
            for i = 0, #values do table.insert(headers[name], values[i]) end
            lines = lines + #headers[name]
        end
    end
    if lines > 90 then return end -- HAProxy drops what is above tune.http.maxhdr
    headers["x-original-method"] = {txn.f:method()}
    headers["x-original-uri"] = {txn.f:pathq()}
    headers["x-forwarded-for"] = headers["x-forwarded-for"] or {}
    table.insert(headers["x-forwarded-for"], txn.f:src())
    local res = core.httpclient():get{url = "http://" .. decide .. "/original", headers = headers, timeout = 5000}
    txn.http:req_del_header("headgate-pass")
    if not res or res.status ~= 204 then
        txn:set_var("txn.headgate_silent", res ~= nil and res.status >= 503)
        return
    end
    txn:set_priv(headers)
    local cookie, pass = res.headers["set-cookie"], res.headers["headgate-pass"]
    txn:set_var("txn.headgate_session", res.headers["headgate-admitted"][0] == "session")
    if cookie then txn:set_var("txn.headgate_cookie", cookie[0]) end
    if pass[0] ~= "" then txn.http:req_set_header("headgate-pass", pass[0]) end
    txn:set_var("txn.headgate_in", true)
end, 1)

-- Relays the origin's command for a request that headgate let in.
core.register_action("headgate_revoke", {"http-res"}, function(txn, decide)
    local headers, cookie = txn:get_priv(), txn:get_var("txn.headgate_cookie")
    if not headers then return end
    headers["cookie"] = {table.concat(headers["cookie"] or {}, "; ") .. "; " .. (cookie or "")}
    core.httpclient():get{url = "http://" .. decide .. "/original/revoke", headers = headers, timeout = 5000}
end, 1)
