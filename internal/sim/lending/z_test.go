package lending
import ("testing";"fmt";"time";"github.com/headgate/headgate/internal/sim";"flag")
var zc = flag.String("case","","")
func TestShrink(t *testing.T) {
	c := RandomCase(*huntSeed)
	if *zc != "" { c, _ = ParseCase(*zc) }
	b, _ := c.Try(t.Context())
	f := &Finding{Case: c, Broken: b}
	fmt.Println(b)
	if b == "" { return }
	f.shrink(t.Context())
	fmt.Println(f.Broken, f.Case)
}
func TestDump(t *testing.T) {
	c, err := ParseCase(*zc)
	if err != nil { t.Fatal(err) }
	st := Strategy()
	var mm *model
	st.Make = func(s *sim.Scenario, w *sim.World) sim.Model { mm = newModel(s, w, c.Length)
			var tick func()
			tick = func() {
				act, fr := w.Inside()
				fmt.Println(w.Now().Round(time.Millisecond), "inside", act, fr, "idle", w.Idle())
				for i, x := range mm.sites {
					if !x.host.serving() { fmt.Println("  site", i, "not serving"); continue }
					p := x.host.desk.Pool()
					clk := x.host.clk()
					r := p.Record()
					wait, called := x.host.desk.Waiting()
					fmt.Printf("  site %d up %v wr %v wait %d called %d free %d/%d ends %d/%d freenow %d asked %v need %v fly %v unsettled %v held %v age %v quiet %v %+v;", i, x.host.up, x.host.writing, wait, called, p.FreeOf(0), p.FreeOf(1), r.Limits[0].Ends.Len(), r.Limits[1].Ends.Len(), p.FreeNow(clk), p.Asked(clk), p.UpNeed(clk), p.UpFlying() != nil, p.Unsettled(clk), p.Held(), p.Age(clk), p.Quiet(clk), r.Up)
					for k := range r.Loans { l := r.Loans[k]; fmt.Printf(" %s g%d r%d o%d over%v dead%v", l.Borrower, l.Granted, l.Returned, l.Opened, l.Over>0, l.Dead) }
					fmt.Println()
				}
				if a := mm.above; a != nil && a.pool.Serving() {
				fmt.Printf("   above up %v wr %v free %d/%d held %v age %v", a.up, a.writing, a.pool.FreeOf(0), a.pool.FreeOf(1), a.pool.Held(), a.pool.Age(a.clk()))
				r := a.pool.Record()
					for k := range r.Loans { l := r.Loans[k]; fmt.Printf(" %s %d g%d r%d o%d over%v dead%v", l.Borrower, l.ID, l.Granted, l.Returned, l.Opened, l.Over>0, l.Dead) }
				fmt.Println()
				}
				mm.after(5*time.Second, tick)
			}
			mm.after(time.Second, tick)
		return mm }
	r, err := sim.Run(t.Context(), c.scenario(), st, sim.Options{Seed: c.Seed})
	fmt.Println(r.Admitted, r.Visitors, r.OvershootRate, err)
}
