package cluster

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	judge "github.com/headgate/headgate/tests/crowd"
)

var beside = flag.Bool("own-nats", false, "keep the records in NATS servers beside, in all scenarios")

var table = flag.String("table", "", "write what was reached into this file: docs/faults.md")

// deeds say what is done in a run, for readers of the table.
func deeds() map[string]string {
	return map[string]string{
		"TestAlone":                "one node, no fault: what the others are held against",
		"TestAloneLimits":          "one node: limits are raised and lowered",
		"TestAloneLostAnswers":     "one node: every twentieth answer is lost after its request was done",
		"TestThree":                "three nodes, no fault",
		"TestKillHost":             "`kill -9` of the room's host, twice",
		"TestKillStoreLeader":      "`kill -9` of the leader of the store, twice",
		"TestFreeze":               "SIGSTOP of the host for 10 s, then SIGCONT",
		"TestRollingRestart":       "each node stopped in order and started again",
		"TestRollingUpgrade":       "each node replaced, from the headgate of the commit before",
		"TestClocksApart":          "wall clocks 2 s apart, and `kill -9` of the host",
		"TestRotateKeys":           "the sealing key replaced at one node, then at another",
		"TestSkew":                 "80 % of the visitors at one node, then at another",
		"TestCutLinks":             "the host cut off from all others for 10 s: connections closed, later silent",
		"TestLostAnswers":          "every twentieth answer lost after its request was done; the visitor asks again",
		"TestLimits":               "limits raised, lowered and raised, each at another node",
		"TestWorkersComeAndGo":     "two workers join, take visitors and are killed",
		"TestSites":                "three data centers, 40 ms apart, no fault",
		"TestSitesQuiet":           "80 % of the visitors in one of three data centers, then in another",
		"TestSitesShift":           "the same with stays of seconds, just below the limit",
		"TestSitesOrder":           "visitors spread over three data centers, each request by a connection of its own",
		"TestSitesHotSpot":         "80 % of the visitors in one data center, each 10 s another",
		"TestSitesWorldSpike":      "little use, then 1,500 within a second everywhere",
		"TestSitesCutOff":          "a data center cut off from both others for 60 s: connections closed",
		"TestSitesCutOffSilent":    "the home of Anywhere cut off from both others for 60 s: silent",
		"TestSitesPairCut":         "a data center and the home of Anywhere cut off from each other for 40 s, silent",
		"TestSitesHomeLost":        "`kill -9` of the home of Anywhere, started again after 30 s",
		"TestSitesLost":            "`kill -9` of another data center, started again after 30 s",
		"TestSitesFreeze":          "SIGSTOP of the home of Anywhere for 12 s, then SIGCONT",
		"TestSitesRoam":            "each fifth request goes to any data center, with the ticket or pass of another",
		"TestSitesRoamLost":        "`kill -9` of a data center for good; its visitors go to the others",
		"TestSitesMove":            "Anywhere moved to another data center, and back",
		"TestSitesMoveLost":        "`kill -9` of the home of Anywhere for good; moved on the operator's word",
		"TestLimitsQuiet":          "three nodes and a worker, no fault",
		"TestLimitsKillHost":       "`kill -9` of a node that hosts a third of the keys, started again after 5 s",
		"TestLimitsKillLeader":     "the same of the leader of the store",
		"TestLimitsKillBoth":       "`kill -9` of two of three at once; one is started again",
		"TestLimitsFreeze":         "SIGSTOP of a node that hosts a third of the keys for 8 s, then SIGCONT",
		"TestLimitsRollingRestart": "each node stopped in order and started again",
		"TestLimitsCut":            "a node cut off from all others for 10 s",
		"TestLimitsPatch":          "an amount lowered at one node and raised at another",
		"TestQueuesQuiet":          "three nodes and a worker, no fault",
		"TestQueuesKillAny":        "`kill -9` of any node at any moment, back within 6 s, and the next within 13 s",
		"TestQueuesKillHost":       "`kill -9` of the node that delivers, started again after 5 s, and of the next",
		"TestQueuesKillLeader":     "the same of the leader of the store",
		"TestQueuesKillEach":       "the same of the store nodes in turn",
		"TestQueuesKillTaker":      "the same of a worker that only takes jobs in",
		"TestQueuesFreeze":         "SIGSTOP of the node that delivers for 15 s, then SIGCONT",
		"TestQueuesCut":            "the node that delivers cut off for 10 s: connections closed, later silent",
		"TestQueuesRollingRestart": "each node stopped in order and started again",
		"TestQueuesFollowKill":     "the node that delivers killed while jobs are followed, changed and canceled",
		"TestQueuesTenantKill":     "the node that delivers killed while a tenant is paused",
		"TestQueuesFollowCut":      "the same node cut off for 10 s meanwhile",
		"TestQueuesPullKill":       "the host and then each node killed while workers at all nodes claim and acknowledge jobs",
		"TestQueuesPullCut":        "the host cut off for 10 s meanwhile, twice",
		"TestQueuesOrderKill":      "the host and then each node killed while jobs have order keys, and the target fails now and then",
		"TestQueuesOrderCut":       "the host cut off for 10 s meanwhile, twice",
		"TestQueuesCompletionKill": "the host and then each node killed while another queue gets completions, and their receiver is down at first",
		"TestQueuesOrderPullKill":  "the host and then each node killed while workers claim jobs with order keys",
		"TestOwnNATS":              "three nodes, records in three NATS servers of the operator's own",
		"TestOwnNATSKillHost":      "the same, and `kill -9` of the host, twice",
		"TestOwnNATSKillLeader":    "the same, and `kill -9` of the leading NATS server, twice",
	}
}

// columns are the figures in the table, by how their names begin.
func columns() []string {
	return []string{
		"inside at once", "the same, and", "new visitors in", "tickets lost", "overtaken by more than 3 s",
		"visitors inside sent back", "answers that are errors", "requests without an answer, at nodes that could",
		"nobody let in",
	}
}

// keep writes a run's row into the table.
func (st *stage) keep(figures []judge.Figure) {
	st.t.Helper()
	name, _, _ := strings.Cut(st.t.Name(), "/")
	what := deeds()[name]
	if *beside {
		name += " -own-nats"
	}
	if *table == "" || what == "" {
		return
	}
	if *beside {
		what += "; records in NATS servers beside"
	}
	var row strings.Builder
	row.WriteString(fmt.Sprintf("| `%s` | %s |", name, what))
	for _, c := range columns() {
		reach, limit := 0.0, 0.0
		for _, f := range figures {
			if !f.Show && strings.HasPrefix(f.Name, c) && (f.Reach > reach || limit == 0) {
				reach, limit = f.Reach, max(f.Limit, 0)
			}
		}
		switch {
		case c == "nobody let in":
			row.WriteString(fmt.Sprintf(" %.1f s |", reach/1000))
		case limit > 0:
			row.WriteString(fmt.Sprintf(" %.0f of %.0f |", reach, limit))
		default:
			row.WriteString(fmt.Sprintf(" %.0f |", reach))
		}
	}
	keepRow(st.t, "", name, row.String())
}

// keepRow writes a row into the first table after a heading, sorted among the others.
func keepRow(t *testing.T, heading, name, row string) {
	t.Helper()
	b, err := os.ReadFile(*table)
	if err != nil {
		t.Fatal(err)
	}
	before, section, _ := strings.Cut(string(b), heading)
	text, rows, _ := strings.Cut(section, "|---|\n")
	rows, after, more := strings.Cut(rows, "\n\n")
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	lines = slices.DeleteFunc(lines, func(s string) bool {
		return s == "" || strings.HasPrefix(s, "| `"+name+"` |")
	})
	lines = append(lines, row)
	slices.Sort(lines)
	text = before + heading + text + "|---|\n" + strings.Join(lines, "\n") + "\n"
	if more {
		text += "\n" + after
	}
	if err := os.WriteFile(*table, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
