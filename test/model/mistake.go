// SPDX-License-Identifier: Apache-2.0

package model

// mistake is a set of deliberate mistakes in the rules. mistakes says what each is.
type mistake uint64

const (
	noLimit mistake = 1 << iota
	jumpQueue
	forgetLeave
	forgetFree
	forgetFreeEnd
	forgetFreeSent
	forgetFreeFailed
	leaveFailed
	keepCount
	commitBlind
	ignoreID
	ignoreBusy
	ignoreBusyEnd
	claimBusy
	forgetUnclaim
	forgetAttend
	leaveForgotten
	keepUnchecked
	forgetKeep
	forgetWatch
	resetFrees
	resumeForgets

	// Narrow ones: what is known of a flow is compared by its id alone, or not at the moment
	// at which it counts.
	forgetStamp
	anyFree
	enterStale
	settleStale
	gaveUpStale
	newsStale
	newsMissed
	overReleased
	unlinkFirst
	claimStale
	passEnding
	endTwice
	recycled
	forgetNew
	countWaiting
	sweepEarly
	pipelineForgotten
	forgetUntaken
	retractMoved
	retractYoung
	lookStale
	giveUpCounted
)

// mistakes are the deliberate ones, each with a scenario that finds it out.
var mistakes = []struct {
	mistake
	scenario string
	what     string
}{
	{noLimit, "turns", "a release asks for no room"},
	{jumpQueue, "classes", "who arrives does not look at who waits"},
	{forgetLeave, "max", "the end of a request is not counted"},
	{forgetFree, "refused", "a node that was taken in vain is not freed"},
	{forgetFreeEnd, "a head on two CPUs", "the node of a flow that ends is not freed"},
	{forgetFreeSent, "max", "the node of a released request is not freed"},
	{forgetFreeFailed, "leaves", "the node of a release whose client has gone is not freed"},
	{leaveFailed, "max", "a release that fails stays counted"},
	{keepCount, "faults", "a release that is put back stays counted"},
	{commitBlind, "leaves", "a release is committed without a look at the flow"},
	{ignoreID, "a body on two CPUs", "ids of flows are not compared"},
	{ignoreBusy, "turns", "a node is picked although its slot is being written"},
	{ignoreBusyEnd, "a head on two CPUs", "a node is freed with its flow although its slot is being written"},
	{claimBusy, "a head on two CPUs", "a slot is claimed that is claimed already"},
	{forgetUnclaim, "max", "a claim is not given back"},
	{forgetAttend, "max", "who ends a service does not look who is next"},
	{leaveForgotten, "epochs", "a request that was given up leaves all the same"},
	{keepUnchecked, "a head on two CPUs", "a slot goes back to a flow that has ended"},
	{forgetKeep, "heads in pieces", "a slot that is the only copy is freed at the release"},
	{forgetWatch, "bodies", "nobody looks again"},
	{resetFrees, "epochs", "a client's RST ends its request's service"},
	{resumeForgets, "bodies", "the rest of a paused request that is sent back is taken for a request"},

	{forgetStamp, "bodies", "a body's bytes pass without a note: a look before they are with the stack finds silence"},
	{anyFree, "a body on two CPUs", "a paused request takes its turn although its answer has begun meanwhile"},
	{enterStale, "keep-alive", "a request enters that was answered since its flow was copied"},
	{settleStale, "full queue", "who could not hold a request ends the flow that another has let in meanwhile"},
	{gaveUpStale, "a head on two CPUs", "a client's RST to a held request ends it although it was released meanwhile"},
	{newsStale, "keep-alive", "an answer ends the service of the request behind its own"},
	{newsMissed, "bodies on two CPUs", "an answer passes unnoticed because its request waits again, or was released, since the flow was copied"},
	{overReleased, "bodies on two CPUs", "the rest of a request is released whose answer came while the release was under way"},
	{unlinkFirst, "bodies on two CPUs", "a rejected flow leaves the table before the stack has been told, and bytes pass as a stranger's"},
	{claimStale, "a head on two CPUs", "a head is read on by a copy of the flow from before the last piece"},
	{passEnding, "refused", "a segment of a flow that is being deleted passes"},
	{endTwice, "refused", "a flow whose id is 0 is deleted for a second time"},
	{recycled, "closes", "the flow found by its key is another connection's when its id is read"},
	{forgetNew, "crowd", "a first request that comes twice at once is taken for one of an open connection"},
	{countWaiting, "heads in pieces", "a request counts as given up only if it is in the list of its class"},
	{sweepEarly, "resets", "a flow is swept between its socket's end and the program that is told of it"},
	{pipelineForgotten, "epochs", "a request that was given up lets the next in before its answer"},
	{forgetUntaken, "drops", "what the stack has dropped stays in service"},
	{retractMoved, "drops on two CPUs", "a request that comes again is taken not to have come, while it passes"},
	{retractYoung, "drops on two CPUs", "a request that has just entered is taken not to have come, by the look at the one before"},
	{lookStale, "drops on two CPUs", "a look at the stack is taken for one at the request that has entered since"},
	{giveUpCounted, "heads that are dropped", "a request that the stack does not take is rejected, and stays counted"},
}
