"""Where the panels stand, on screens of all sizes."""

CSS = """
Screen { layers: base; }
#header { height: auto; padding: 0 1; }
TabbedContent { height: 1fr; }
TabPane { padding: 0; height: 1fr; }
ContentTabs { height: 1; }
ContentTabs Underline { display: none; }
ContentTab { padding: 0 1; }
ContentTab.-active { text-style: bold reverse; }
Panel {
    text-wrap: nowrap; text-overflow: clip; padding: 0 1;
    border-top: solid $primary; border-title-color: $text-accent;
}
#header { border: none; }
Panel.filling { height: 1fr; }
Panel.tall { height: auto; min-height: 2; }
VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
#overview-grid { grid-size: 2; grid-columns: 1fr 1fr; grid-rows: 2fr 1fr 1fr; grid-gutter: 0 1; height: 1fr; }
#overview-log { column-span: 2; }
#training-grid { grid-size: 2; grid-columns: 1fr 1fr; grid-rows: 3fr 2fr 2fr; grid-gutter: 0 1; height: 1fr; }
#training-loss { column-span: 2; }
#log-lines { height: 1fr; scrollbar-size: 1 1; }
Help { align: center middle; background: $background 60%; }
#help {
    width: 90; max-width: 96%; height: auto; max-height: 96%;
    border: round $primary; padding: 0 1; background: $surface;
}

/* Narrow: one below the other. */
.-narrow #overview-grid { grid-size: 1; grid-columns: 1fr; grid-rows: 2fr 1fr 1fr 1fr 1fr; }
.-narrow #overview-log { column-span: 1; }
.-narrow #training-grid { grid-size: 1; grid-columns: 1fr; grid-rows: 2fr 1fr 1fr 1fr 1fr; }
.-narrow #training-loss { column-span: 1; }

/* Low: what matters most. */
.-low #overview-ranks, .-low #overview-alarms, .-low #overview-log { display: none; }
.-low #overview-grid { grid-rows: 1fr; }
.-low #training-grid Panel { display: none; }
.-low #training-grid #training-loss { display: block; column-span: 1; }
.-low #training-grid { grid-size: 1; grid-columns: 1fr; grid-rows: 1fr; }
"""
