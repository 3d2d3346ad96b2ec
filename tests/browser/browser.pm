# Drives a headless Chromium over its DevTools protocol through two pipes, for tests of the board's
# page. Needs no module that is not part of Perl.
#
#   my $b = Browser->start($profile_dir);
#   $b->open($url);
#   $b->wait_for('document.title === "x"', 'the title');   JavaScript, until it is true
#   my $n = $b->value('1 + 1');
#   $b->shoot("file.png");
#   $b->stop;
package Browser;
use strict;
use warnings;
use JSON::PP;
use MIME::Base64;
use POSIX qw(dup2 :sys_wait_h);
use Time::HiRes qw(time sleep);

my $json = JSON::PP->new->utf8->allow_nonref;

sub start {
  my ($class, $profile, $program) = @_;
  pipe(my $command_out, my $command_in) or die "pipe: $!";
  pipe(my $answer_out, my $answer_in) or die "pipe: $!";
  my $pid = fork // die "fork: $!";
  if (!$pid) {
    setpgrp;
    # Chromium reads commands from descriptor 3 and writes answers to 4; high copies come first, as
    # the pipes may have these numbers.
    my ($in, $out) = (fileno($command_out), fileno($answer_in));
    dup2($in, 30);
    dup2($out, 31);
    dup2(30, 3);
    dup2(31, 4);
    open STDOUT, '>', "$profile.log";
    open STDERR, '>&', \*STDOUT;
    exec $program, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
      '--disable-background-networking', '--force-color-profile=srgb', "--user-data-dir=$profile",
      '--remote-debugging-pipe', 'about:blank';
    die "cannot start $program: $!";
  }
  close $command_out;
  close $answer_in;
  my $self = bless { pid => $pid, in => $command_in, out => $answer_out, next => 1, rest => '', console => [] }, $class;
  $self->{in}->autoflush(1);
  my $targets = $self->call('Target.getTargets')->{targetInfos};
  my ($page) = grep { $_->{type} eq 'page' } @$targets;
  $self->{session} = $self->call('Target.attachToTarget', { targetId => $page->{targetId}, flatten => JSON::PP::true })->{sessionId};
  $self->call($_) for qw(Page.enable Runtime.enable Log.enable Network.enable);
  return $self;
}

# Reads one message; dies after a minute without one.
sub receive {
  my $self = shift;
  my $end = time + 60;
  while ($self->{rest} !~ /\0/) {
    my $ready = '';
    vec($ready, fileno($self->{out}), 1) = 1;
    die "the browser does not answer\n" if time > $end;
    next unless select($ready, undef, undef, 1);
    sysread($self->{out}, $self->{rest}, 1 << 20, length $self->{rest}) or die "the browser has ended\n";
  }
  $self->{rest} =~ s/^([^\0]*)\0//s;
  my $message = $json->decode($1);
  my $method = $message->{method} // '';
  push @{ $self->{console} }, $message->{params}{entry}{text} if $method eq 'Log.entryAdded';
  push @{ $self->{console} }, $json->encode($message->{params}{exceptionDetails}) if $method eq 'Runtime.exceptionThrown';
  push @{ $self->{requests} }, $message->{params}{request}{url} if $method eq 'Network.requestWillBeSent';
  return $message;
}

sub call {
  my ($self, $method, $params) = @_;
  my $id = $self->{next}++;
  my %message = (id => $id, method => $method, params => $params // {});
  $message{sessionId} = $self->{session} if $self->{session};
  print { $self->{in} } $json->encode(\%message), "\0";
  while (1) {
    my $message = $self->receive;
    next unless defined $message->{id} && $message->{id} == $id;
    die "$method: $message->{error}{message}\n" if $message->{error};
    return $message->{result};
  }
}

sub value {
  my ($self, $code) = @_;
  my $result = $self->call('Runtime.evaluate', { expression => $code, returnByValue => JSON::PP::true, awaitPromise => JSON::PP::true });
  die "$code: " . $json->encode($result->{exceptionDetails}) . "\n" if $result->{exceptionDetails};
  return $result->{result}{value};
}

sub open {
  my ($self, $url) = @_;
  $self->call('Page.navigate', { url => 'about:blank' });
  $self->wait_for('location.href === "about:blank"', 'an empty page');
  $self->call('Page.navigate', { url => $url });
}

sub wait_for {
  my ($self, $code, $what) = @_;
  my $end = time + 120;
  until (eval { $self->value($code) }) {
    die "this did not come true: $what\n" . ($@ || '') if time > $end;
    sleep 0.05;
  }
}

sub size {
  my ($self, $width, $height) = @_;
  $self->call('Emulation.setDeviceMetricsOverride',
    { width => int $width, height => int $height, deviceScaleFactor => 1, mobile => $width < 600 ? JSON::PP::true : JSON::PP::false });
}

sub scheme {
  my ($self, $name) = @_;
  $self->call('Emulation.setEmulatedMedia', { features => [{ name => 'prefers-color-scheme', value => $name }] });
}

sub press {
  my ($self, $key) = @_;
  my %text = length $key == 1 ? (text => $key) : ();
  $self->call('Input.dispatchKeyEvent', { type => 'keyDown', key => $key, %text });
  $self->call('Input.dispatchKeyEvent', { type => 'keyUp', key => $key });
}

# Drags from one place of the page to another.
sub drag {
  my ($self, $x0, $y0, $x1, $y1) = @_;
  my %left = (button => 'left', buttons => 1, clickCount => 1);
  $self->call('Input.dispatchMouseEvent', { type => 'mouseMoved', x => $x0, y => $y0 });
  $self->call('Input.dispatchMouseEvent', { type => 'mousePressed', x => $x0, y => $y0, %left });
  $self->call('Input.dispatchMouseEvent', { type => 'mouseMoved', x => ($x0 + $x1) / 2, y => $y1, %left });
  $self->call('Input.dispatchMouseEvent', { type => 'mouseMoved', x => $x1, y => $y1, %left });
  $self->call('Input.dispatchMouseEvent', { type => 'mouseReleased', x => $x1, y => $y1, %left });
}

sub shoot {
  my ($self, $file) = @_;
  my $data = $self->call('Page.captureScreenshot', { format => 'png' })->{data};
  CORE::open(my $out, '>:raw', $file) or die "$file: $!";
  print $out decode_base64($data);
  close $out;
}

sub stop {
  my $self = shift;
  eval { delete $self->{session}; $self->call('Browser.close') };
  my $end = time + 20;
  while (waitpid($self->{pid}, WNOHANG) == 0) {
    kill KILL => -$self->{pid} if time > $end;
    sleep 0.05;
  }
}

1;
